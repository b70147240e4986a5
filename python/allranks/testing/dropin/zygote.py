"""A process that waits to be forked: it has every package imported that the tests need, and has run nothing.

Started by pytest once, after collection. It has one thread, so what it forks inherits no lock that nobody releases.
It ends when pytest ends, in whatever way: then its socket is closed.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import traceback
from collections.abc import Sequence

from allranks.isolation import monkeypatch
from allranks.testing.dropin import fresh, wire

_STATUS = struct.Struct("!i")


class ZygoteDied(RuntimeError):
    """Nobody is there to fork."""


class Child:
    """A process that plays the ranks of one test, as pytest sees it."""

    def __init__(self, zygote: Zygote, number: int, status: int) -> None:
        self._zygote, self._number, self._status = zygote, number, status
        self._code: int | None = None

    def wait(self) -> int:
        """How it ended, as `subprocess` gives it; waits for that."""
        if self._code is None:
            data = os.read(self._status, _STATUS.size)
            os.close(self._status)
            self._code = _STATUS.unpack(data)[0] if len(data) == _STATUS.size else -int(signal.SIGKILL)
        return self._code

    def kill(self) -> None:
        """Ends it, whatever it does."""
        if self._code is None:
            with contextlib.suppress(OSError):
                wire.send(self._zygote.sock, ("kill", self._number, []))


class Zygote:
    """The zygote, as pytest sees it."""

    def __init__(self, process: subprocess.Popen[bytes], sock: socket.socket) -> None:
        self._process, self.sock = process, sock
        self._count = 0

    @classmethod
    def start(cls) -> Zygote:
        """Starts it, to import what this process has imported of installed packages.

        It is no fork of this process, whose test modules have registered things in torch, replaced others, and so on:
        ranks import these modules anew, as spawned processes do.
        """
        mine, theirs = socket.socketpair()
        code = f"import sys; sys.path[:] = {sys.path!r}; from allranks.testing.dropin import zygote; "
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # As multiprocessing does.
        process = subprocess.Popen(
            [sys.executable, *flags, "-c", f"{code}zygote.main({theirs.fileno()})"],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        wire.send(mine, fresh.imported())
        return cls(process, mine)

    def fork(self, files: Sequence[str]) -> tuple[socket.socket, Child]:
        """A new child, with a socket to it. `files` are modules that its ranks will import: compiled once for all.

        Raises `ZygoteDied` if there is no zygote any more.
        """
        self._count += 1
        mine, theirs = socket.socketpair()
        status, says = os.pipe()
        try:
            wire.send(self.sock, ("fork", self._count, list(files)), [theirs.fileno(), says])
        except OSError:
            mine.close()
            os.close(status)
            raise ZygoteDied(f"the process that forks the ranks has ended{self._last_words()}") from None
        finally:
            theirs.close()
            os.close(says)
        return mine, Child(self, self._count, status)

    def _last_words(self) -> str:
        words = wire.Inbox(self.sock).messages()
        return f": {words[-1]}" if words else ""

    def stop(self) -> None:
        """Ends it and every child."""
        self.sock.close()
        self._process.wait()


def main(fd: int) -> None:
    """The whole life of the zygote; `fd` is its socket."""
    sock = socket.socket(fileno=fd)
    try:
        _Nursery(sock).serve()
    except BaseException as error:
        traceback.print_exc(file=sys.__stderr__)
        with contextlib.suppress(OSError):
            wire.send(sock, f"{type(error).__name__}: {error}")
    finally:
        os._exit(0)


class _Nursery:
    """The zygote's own side."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._children: dict[int, tuple[int, int]] = {}
        fresh.forget_signals()
        fresh.import_again(*wire.receive(sock)[0])
        from allranks import launch
        from allranks.isolation import sync
        from allranks.testing.dropin import child  # noqa: F401

        # A run that does nothing: what every run imports and looks for in all modules is then known to the children.
        # To look again would copy most of their memory.
        launch.run_all_ranks(launch.Options(world_size=1, launcher=False, clock="virtual"), lambda _: None)
        sync.remember_module_locks()
        self._wake, wakes = os.pipe()
        for fd in (self._wake, wakes):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakes)
        self._wakes = wakes
        gc.collect()
        gc.freeze()  # What is there stays: no collection of a child touches, and so copies, its memory.

    def serve(self) -> None:
        """Forks on request until pytest is gone."""
        poller = select.poll()
        poller.register(self._sock, select.POLLIN)
        poller.register(self._wake, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poller.poll()}
            if self._wake in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake, 512)
                self._bury()
            if self._sock.fileno() in ready:
                try:
                    (what, number, files), fds = wire.receive(self._sock)
                except (EOFError, OSError):
                    break
                if what == "fork":
                    self._compile(files)
                    self._fork(number, fds)
                elif number in self._children:
                    os.kill(self._children[number][0], signal.SIGKILL)
        for pid, _ in self._children.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _compile(self, files: list[str]) -> None:
        for file in files:
            # An error in it is the child's to raise, where it is imported.
            with contextlib.suppress(OSError, SyntaxError, ValueError):
                monkeypatch.compiled(file, _read)

    def _fork(self, number: int, fds: list[int]) -> None:
        control, status = fds
        pid = os.fork()
        if pid:
            self._children[number] = pid, status
            os.close(control)
            return
        code = 1
        try:
            self._sock.close()
            for fd in (self._wake, self._wakes, status, *(status for _, status in self._children.values())):
                os.close(fd)
            fresh.forget_signals()
            from allranks.testing.dropin import child

            child.Spawned(socket.socket(fileno=control)).play()
            code = 0
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(code)

    def _bury(self) -> None:
        """Says how children ended that did."""
        for number, (pid, status) in list(self._children.items()):
            done, how = os.waitpid(pid, os.WNOHANG)
            if done:
                with contextlib.suppress(OSError):  # Nobody may want to know.
                    os.write(status, _STATUS.pack(os.waitstatus_to_exitcode(how)))
                os.close(status)
                del self._children[number]


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
