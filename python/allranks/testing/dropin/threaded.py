"""`MultiThreadedTestCase`: its threads become ranks of a child that is forked when the test starts them.

Forked from pytest itself, not from the zygote: threads see what `setUp` and `setUpClass` did to their class.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from allranks._allranks import RankAborted
from allranks.testing.dropin import child, fresh, process, wire

#: `(rank, exception, its traceback as text)`.
Failure = tuple[int, BaseException, str]


class Forked:
    """A child of pytest itself."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._code: int | None = None

    def wait(self) -> int:
        """How it ended; waits for that."""
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self._code

    def kill(self) -> None:
        """Ends it."""
        if self._code is None:
            os.kill(self._pid, signal.SIGKILL)


class _Part(child.Part):
    def __init__(self, rank: int, call: Callable[[int], None], said: list[Failure]) -> None:
        super().__init__(f"Thread-{rank}")
        self._rank, self._call, self._said = rank, call, said

    def act(self) -> None:
        try:
            self._call(self._rank)
        except RankAborted:
            raise
        except BaseException:
            traceback.print_exc()  # As a thread's exception is shown.
            raise

    def blame(self, text: str) -> bool:
        self._said.append((self._rank, RuntimeError(text), ""))
        return True


class _Play(child.Play):
    def __init__(self, control: socket.socket, failures: queue.Queue[Any]) -> None:
        super().__init__(control)
        self._failures = failures

    def rank_ended(self, rank: int) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                failed, (_, error, trace) = self._failures.get_nowait()
                if not isinstance(error, RankAborted):
                    self.say((failed, error, "".join(traceback.format_exception(type(error), error, trace))))

    def say_all(self, failures: list[Failure]) -> None:
        """As `say`, several."""
        for one in failures:
            self.say(one)

    def say(self, failure: Failure) -> None:
        """Tells pytest what a rank raised."""
        rank, error, text = failure
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # Whatever a class of the user's does when it is pickled.
            error = RuntimeError(f"{type(error).__name__}: {error}")
        wire.send(self._control, ("left", (rank, error, text)))


class Threads(process.Batch):
    """The ranks that stand for the threads of one test."""

    reruns = False

    def __init__(self, world_size: int, failures: queue.Queue[Any]) -> None:
        super().__init__()
        self._failures = failures
        for rank in range(world_size):
            one = RankThread(self, rank)
            one.start()
            self.ranks.append(one)

    def start(self, options: dict[str, Any], call: Callable[[int], None]) -> None:
        """Forks the child, in which every rank makes the call."""
        mine, theirs = socket.socketpair()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid:
            theirs.close()
            self.attach(mine, Forked(pid))
            return
        code = 1
        try:
            mine.close()
            process.forget()
            fresh.forget_signals()
            fresh.fresh_streams()
            said: list[Failure] = []
            play = _Play(theirs, self._failures)
            parts: list[child.Part] = [_Part(one._rank, call, said) for one in self.ranks]
            play.run({**options, "backends": ("threaded",)}, parts, before_end=lambda: play.say_all(said))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def tell(self) -> None:
        """All have ended: their exceptions go where threads would have put them."""
        for rank, error, text in self.left:
            if text:
                error.__cause__ = _Trace(text)
            self._failures.put((rank, (type(error), error, None)))
        self.left.clear()
        if self.died_of is not None:
            self._failures.put((0, (RuntimeError, RuntimeError(self.died_of), None)))


class _Trace(Exception):
    """Where an exception came from, as text: shown above it."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class RankThread(process.RankProcess):
    """One rank, with the names that a `threading.Thread` has."""

    def __init__(self, batch: Threads, rank: int) -> None:
        super().__init__(batch, rank, f"Thread-{rank}")
        self._threads = batch

    def join(self, timeout: float | None = None) -> None:
        """Waits for the end of all, `timeout` seconds at most."""
        super().join(timeout)
        if all(one.exitcode is not None for one in self._threads.ranks):
            self._threads.tell()
        elif self.exitcode is None:
            self._threads.kill()  # Upstream says that it did not end in time, and gives up.
