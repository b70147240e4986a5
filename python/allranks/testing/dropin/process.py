"""What stands for the processes of one test in the pytest process: one object a rank, one child for all of them."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from allranks.testing.dropin import child, names, wire
from allranks.testing.dropin.child import FAILED
from allranks.testing.dropin.ledger import NeedsProcesses

#: How long the other ranks may go on once one has failed, in seconds.
GRACE = 2.0
#: A rank's `os.getpid()` is this and its number.
_FIRST_PID = 1 << 22

_live: list[Batch] = []


class AChild(Protocol):
    """The process behind a batch."""

    def wait(self) -> int:
        """How it ended."""

    def kill(self) -> None:
        """Ends it."""


class RankProcess:
    """One rank, with the names that a `multiprocessing.Process` has."""

    def __init__(self, batch: Batch, rank: int, name: str) -> None:
        self._batch, self._rank = batch, rank
        self.name = name
        self.daemon = True
        self.pid: int | None = None
        self.authkey = b""

    def start(self) -> None:
        """The batch starts when all its ranks have."""
        self.pid = _FIRST_PID + self._rank

    @property
    def exitcode(self) -> int | None:
        """None while it runs; the status; or a signal's number, negative."""
        return self._batch.exitcode(self._rank)

    def is_alive(self) -> bool:
        """Whether it runs."""
        return self.pid is not None and self.exitcode is None

    def join(self, timeout: float | None = None) -> None:
        """Waits for its end, `timeout` seconds at most."""
        until = None if timeout is None else time.monotonic() + timeout
        self._batch.reap(self._rank)
        while self.exitcode is None:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return
            wait_for_news(left)

    def terminate(self) -> None:
        """Ends it; once that was asked for all that run, they end."""
        self._batch.terminate(self._rank, signal.SIGTERM)

    def kill(self) -> None:
        """As `terminate`, by another signal."""
        self._batch.terminate(self._rank, signal.SIGKILL)

    def close(self) -> None:
        """Nothing is held for one rank."""


class Batch:
    """The ranks of one test, in one child."""

    #: Whether a test whose child died is to run again as processes.
    reruns = True

    def __init__(self) -> None:
        self.ranks: list[RankProcess] = []
        self._parts: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []
        self._codes: dict[int, int] = {}
        self._doomed: dict[int, int] = {}
        self._reaped: set[int] = set()
        self._failed_at: float | None = None
        self._over = False
        self._needs: str | None = None
        self._sock: socket.socket | None = None
        #: What ranks left behind, in the order in which it came.
        self.left: list[Any] = []

    # Starting

    def process(
        self,
        group: None = None,
        target: Callable[..., Any] | None = None,
        name: str | None = None,
        args: Any = (),
        kwargs: Any = None,
        *,
        daemon: bool | None = None,
    ) -> RankProcess:
        """In the place of `multiprocessing.Process`."""
        del group, daemon
        assert target is not None, "torch's bases say what a process is for"
        rank = len(self.ranks)
        process = RankProcess(self, rank, name or f"Process-{rank + 1}")
        self.ranks.append(process)
        self._parts.append((target, tuple(args), dict(kwargs or {})))
        return process

    def go(self, fork: Callable[[list[str]], tuple[socket.socket, AChild]], options: dict[str, Any]) -> None:
        """Starts all ranks in a child that `fork` makes. Raises what pickling raises, and what `fork` does."""
        descriptors = [1, 2]
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        packed = [
            (process.name, wire.pack(part, descriptors)) for process, part in zip(self.ranks, self._parts, strict=True)
        ]
        files = _files_of([target for target, _, _ in self._parts])
        request = child.Request(options, dict(os.environ), os.getcwd(), list(sys.path), list(sys.argv), packed, files)
        sock, process = fork(list(files.values()))
        self.attach(sock, process)
        wire.send(sock, request, descriptors)
        self._parts.clear()  # The child has its own copies of the descriptors; these are closed.

    def attach(self, sock: socket.socket, process: AChild) -> None:
        """The child is there, and speaks through `sock`."""
        self._sock, self._child, self._inbox = sock, process, wire.Inbox(sock)
        _live.append(self)

    # Looking

    @property
    def died_of(self) -> str | None:
        """What ended a rank that did not end by itself."""
        return self._needs

    def fileno(self) -> int:
        """Readable when there is news."""
        assert self._sock is not None, "the batch was started"
        return self._sock.fileno()

    def exitcode(self, rank: int) -> int | None:
        """As `RankProcess.exitcode`. Raises `NeedsProcesses` if the test cannot be right in one process."""
        self.look()
        if self._needs is not None and self.reruns:
            self.kill()
            raise NeedsProcesses(self._needs)
        code = self._codes.get(rank)
        if rank in self._doomed and rank not in self._reaped:
            return None  # A process that was just ended is not gone yet: upstream calls it timed out.
        if code == FAILED and not self._over and not self._late():
            return None  # Upstream looks at the others only now: let them say what they have to say first.
        return code

    def _late(self) -> bool:
        return self._failed_at is not None and time.monotonic() - self._failed_at >= GRACE

    def patience(self) -> float | None:
        """How long to wait for news, in seconds, before what is known counts."""
        if self._failed_at is None or self._over:
            return None
        return max(self._failed_at + GRACE - time.monotonic(), 0.0)

    def reap(self, rank: int) -> None:
        """Somebody waits for the end of a rank."""
        self._reaped.add(rank)

    def look(self) -> None:
        """Takes in what the child said. Once all ranks have ended, so does the child."""
        while self._sock is not None:
            self._take_in(self._inbox.messages())
            if self._inbox.ended or self._over:
                self._close()
            elif len(self._codes) < len(self.ranks):
                return
            elif not self._more_to_come():
                self._child.kill()
                self._close()

    def _more_to_come(self) -> bool:
        poller = select.poll()
        poller.register(self.fileno(), select.POLLIN)
        return bool(poller.poll(int(GRACE * 1000)))

    def _take_in(self, messages: list[Any]) -> None:
        for what, *rest in messages:
            if what == "end":
                self._ended(*rest)
            elif what == "stopped":
                self._codes[rest[0]] = -int(signal.SIGTERM)
            elif what == "left":
                self.left.append(rest[0])
            elif what == "over":
                self._all_ended(*rest)

    def _ended(self, rank: int, code: int) -> None:
        self._codes[rank] = code
        if code == FAILED and self._failed_at is None:
            self._failed_at = time.monotonic()
        if code < 0:
            self._needs = f"rank {rank} is ended by {signal.Signals(-code).name}"

    def _all_ended(self, stalled: list[int], told: list[int]) -> None:
        for rank in stalled:
            # Upstream ends those that still run when one has failed.
            self._codes[rank] = FAILED if rank in told else -int(signal.SIGTERM)
        self._over = True

    def _close(self) -> None:
        """The child is gone."""
        assert self._sock is not None
        self._sock.close()
        self._sock = None
        if self in _live:
            _live.remove(self)
        how = self._child.wait()
        missing = [process for process in self.ranks if process._rank not in self._codes]
        if missing and not self._doomed and self._needs is None:
            cause = signal.Signals(-how).name if how < 0 else f"status {how}"
            self._needs = f"the process of all ranks ended with {cause}"
        for process in missing:
            self._codes[process._rank] = -self._doomed.get(process._rank, signal.SIGKILL)
        self._over = True

    # Ending

    def terminate(self, rank: int, by: int) -> None:
        """One rank is to end; the child does when none that runs is to go on."""
        self.look()
        if rank in self._codes:
            return
        self._doomed[rank] = int(by)
        if all(p._rank in self._codes or p._rank in self._doomed for p in self.ranks):
            self.kill()

    def kill(self) -> None:
        """Ends the child and waits for its end."""
        if self._sock is None:
            return
        for process in self.ranks:
            self._doomed.setdefault(process._rank, int(signal.SIGKILL))
        self._child.kill()
        self._inbox.messages()
        self._close()


def _files_of(targets: list[Callable[..., Any]]) -> dict[str, str]:
    """The modules that define the class of the tests and its bases, with their files."""
    files = {}
    owners: list[Any] = [getattr(target, "__self__", target) for target in targets[:1]]
    for owner in owners:
        for cls in getattr(owner, "__mro__", (owner,)):
            module = sys.modules.get(getattr(cls, "__module__", ""))
            file = getattr(module, "__file__", None)
            if module is not None and file and _is_private(module.__name__, file):
                files[module.__name__] = str(file)
    return files


def _is_private(name: str, file: str) -> bool:
    from allranks.isolation.modules import is_users_file

    return file.endswith(".py") and (is_users_file(file) or name.startswith(names.SUITES))


def wait_for_news(limit: float | None) -> None:
    """Until some child says something, `limit` seconds at most."""
    if not _live:
        return
    waits = [w for w in (limit, *(batch.patience() for batch in _live)) if w is not None]
    poller = select.poll()
    for batch in _live:
        poller.register(batch.fileno(), select.POLLIN)
    poller.poll(int(min(waits) * 1000) + 1 if waits else None)


def any_live() -> bool:
    """Whether some batch runs."""
    return bool(_live)


def forget() -> None:
    """In a forked child: they are the parent's."""
    _live.clear()
