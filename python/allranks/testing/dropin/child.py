"""What a child does: it plays all ranks of one test, and says how each ended."""

from __future__ import annotations

import importlib.util
import json
import os
import select
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from allranks import _allranks, launch
from allranks.isolation import modules
from allranks.testing.dropin import fresh, names, wire
from allranks.testing.dropin.idle import Idle

_write, _read = os.write, os.read
#: Exit status of a rank whose test failed.
FAILED = 10
#: How often upstream looks whether a rank has failed, in nanoseconds; then it ends the others.
_UPSTREAM_LOOKS_EVERY = 1_000_000_000


@dataclass
class Request:
    """What pytest asks of a child that stands for spawned processes."""

    options: dict[str, Any]
    #: What a spawned process would have from its parent.
    environment: dict[str, str]
    folder: str
    path: list[str]
    arguments: list[str]
    #: By rank: the name of the process, and `(function, args, kwargs)` packed.
    ranks: list[tuple[str, bytes]]
    #: Where modules lie that may not be found by name.
    files: dict[str, str] = field(default_factory=dict)


class Listener(threading.Thread):
    """Of no rank: hears when pytest is gone, and answers for ranks that are asked where they stand."""

    def __init__(self, control: socket.socket) -> None:
        super().__init__(daemon=True)
        self._control = control
        self._poller = select.poll()
        self._poller.register(control, select.POLLIN)
        self._heard, self._speaks = os.pipe()
        self._poller.register(self._heard, select.POLLIN)
        self._asked: dict[int, tuple[Connection, int]] = {}

    def answer_on(self, pipe: Connection, rank: int) -> None:
        """Questions to `rank` come through `pipe`, which the rank may close."""
        mine = Connection(os.dup(pipe.fileno()))
        self._asked[mine.fileno()] = mine, rank
        self._poller.register(mine.fileno(), select.POLLIN)
        _write(self._speaks, b"x")

    def run(self) -> None:
        while True:
            for fd, _ in self._poller.poll():
                if fd == self._heard:
                    _read(fd, 1)
                elif fd == self._control.fileno():
                    os._exit(1)  # Nobody wants the outcome.
                else:
                    self._answer(*self._asked[fd])

    def _answer(self, pipe: Connection, rank: int) -> None:
        try:
            pipe.recv()
            pipe.send(stacks_of(rank))
        except (EOFError, OSError):
            self._poller.unregister(pipe.fileno())
            pipe.close()


def stacks_of(rank: int) -> str:
    """Where the threads of a rank stand."""
    from allranks import runtime

    run = runtime.current()
    if run is None:
        return ""
    frames, parts = sys._current_frames(), []
    for task, owner, _, _ in run.baton.tasks():
        frame = frames.get(run.baton.threads().get(task, -1))
        if owner == rank and frame is not None:
            parts.append("".join(traceback.format_stack(frame)))
    return "\n".join(parts)


class Part:
    """What one rank has to do."""

    def __init__(self, name: str) -> None:
        self.name = name

    def act(self) -> Any:
        """On the rank's thread."""
        raise NotImplementedError

    def blame(self, text: str) -> bool:
        """Nobody could go on: tells the rank's side of pytest why. False if that has nobody to listen."""
        raise NotImplementedError


class SpawnedPart(Part):
    """What a spawned process would do: unpickle a function, which imports its module, and call it."""

    def __init__(self, name: str, packed: bytes, fds: list[int], files: dict[str, str], idle: Idle) -> None:
        super().__init__(name)
        self._unpacker = _Unpacker(packed, fds, files)
        self._idle = idle
        self._mouth: Callable[[Any], None] | None = None

    def act(self) -> Any:
        try:
            function, args, kwargs = self._unpacker.load()
        except Exception:
            traceback.print_exc()  # As a spawned process does, whose `Process` is not there yet.
            raise
        self._find_mouth()
        for queue in self._unpacker.queues:
            queue.wait_for = self._idle.wait_for
        try:
            return function(*args, **kwargs)
        except (SystemExit, _allranks.RankAborted):
            raise
        except BaseException:
            sys.stderr.write(f"Process {self.name}:\n{traceback.format_exc()}")  # As multiprocessing shows it.
            raise

    def _find_mouth(self) -> None:
        """Kept open although the rank may close its end: the first pipe, or the last queue."""
        if self._unpacker.connections:
            self._mouth = Connection(os.dup(self._unpacker.connections[0].fileno())).send
        elif self._unpacker.queues:
            writer = Connection(os.dup(self._unpacker.queues[-1].ends()[1].fileno()), readable=False)
            self._mouth = lambda text: writer.send(RuntimeError(text))

    def blame(self, text: str) -> bool:
        if self._mouth is None:
            return False
        try:
            self._mouth(text)
        except OSError:
            return False
        return True


def _explains(world: Any) -> bool:
    """Whether something was found that the exceptions of the ranks do not say: a time-out does not name its cause."""
    found = (json.loads(line) for line in _allranks.findings_json(world))
    return any(one["severity"] == "error" and one["id"] != "rank-failed" for one in found)


class _Unpacker(wire.Unpacker):
    def __init__(self, data: bytes, fds: list[int], files: dict[str, str]) -> None:
        super().__init__(data, fds)
        self._files = files

    def find_class(self, module: str, name: str) -> Any:
        try:
            return super().find_class(module, name)
        except ModuleNotFoundError as error:
            missing = error.name or ""
            if module not in self._files or not (module + ".").startswith(missing + "."):
                raise
        self._import(module)
        return super().find_class(module, name)

    def _import(self, name: str) -> None:
        """pytest imported it from its file, under a name that only it knows."""
        spec = importlib.util.spec_from_file_location(
            name, self._files[name], loader=modules.UserLoader(name, self._files[name])
        )
        assert spec is not None and spec.loader is not None
        modules.take_module(name)
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise


class Play:
    """One test: its parts, played, with the outcome sent to pytest."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._listener = Listener(control)
        #: The program's time when the first rank failed, in nanoseconds.
        self._failed_at: int | None = None

    def rank_ended(self, rank: int) -> None:
        """On the rank's thread, before pytest hears of its end."""

    def run(self, options: dict[str, Any], parts: list[Part], before_end: Callable[[], Any] = lambda: None) -> None:
        """Returns when every rank has ended and pytest knows how; `before_end` may tell it more."""
        self._hear_for_torch()
        self._listener.start()
        plan = launch.Options(world_size=len(parts), watchdog=None, launcher=False, **options)
        outcome = launch.run_all_ranks(plan, lambda rank: parts[rank].act(), show_errors=False, on_end=self._ended)
        stalled = [result.rank for result in outcome.ranks if result.status is None]
        text = _allranks.findings_text(outcome.world).strip() if stalled or _explains(outcome.world) else ""
        failed = any(result.status == FAILED for result in outcome.ranks)
        told = [rank for rank in stalled if not failed and parts[rank].blame(text)]
        if text:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
        before_end()
        wire.send(self._control, ("over", stalled, told))

    def _ended(self, result: launch.RankResult) -> None:
        self.rank_ended(result.rank)
        code = -result.signal if result.signal is not None else result.status
        if code == FAILED and self._too_late():
            wire.send(self._control, ("stopped", result.rank))
        else:
            wire.send(self._control, ("end", result.rank, code))

    def _too_late(self) -> bool:
        """Whether upstream would have ended this rank before it failed: another one had."""
        now = time.monotonic_ns()
        if self._failed_at is None:
            self._failed_at = now
        return now - self._failed_at > _UPSTREAM_LOOKS_EVERY

    def _hear_for_torch(self) -> None:
        """torch's bases start a thread in each rank that waits for questions; ours answers for all ranks."""
        module = sys.modules.get(names.MODULE)
        if module is not None:
            listener = self._listener

            def event_listener(parent_pipe: Connection, signal_pipe: Connection, rank: int) -> None:
                listener.answer_on(parent_pipe, rank)

            vars(module)[names.PROCESSES]._event_listener = staticmethod(event_listener)


class Spawned(Play):
    """A child that stands for processes that torch would spawn."""

    def play(self) -> None:
        """Reads the request and does it."""
        request, fds = wire.receive(self._control)
        for number in (1, 2):
            os.dup2(fds[number - 1], number)
            os.close(fds[number - 1])
        fresh.fresh_streams()
        os.environ.clear()
        os.environ.update(request.environment)
        os.chdir(request.folder)
        sys.path[:], sys.argv[:] = request.path, request.arguments
        idle = Idle(len(request.ranks))
        parts: list[Part] = [SpawnedPart(name, packed, fds, request.files, idle) for name, packed in request.ranks]
        self.run(request.options, parts)
