"""Calls that block for a reason outside this process: other ranks run meanwhile.

A wrapper first asks whether the call would return at once, and hands over only if not: an answer that is there is taken
without any hand-over, so that the order of ranks stays a function of the program where it can be.
"""

from __future__ import annotations

import builtins
import functools
import os
import select
import socket
import subprocess
import time
from typing import Any

from allranks import debugger, runtime
from allranks._allranks import current_rank
from allranks.isolation import selecting
from allranks.isolation.outside import in_rank as _in_rank
from allranks.isolation.outside import outside
from allranks.isolation.registry import Registry

_poll = getattr(select, "poll", None)
_waitid = getattr(os, "waitid", None)
_monotonic, _sleep_really = time.monotonic, time.sleep


def ready(fd: int, *, write: bool = False) -> bool:
    """Whether a read (or write) would not block."""
    if _poll is None:
        return True
    poller = _poll()
    try:
        poller.register(fd, select.POLLOUT if write else select.POLLIN)
        return bool(poller.poll(0))
    except (OSError, ValueError, TypeError):
        return True  # Let the call itself say what is wrong.


def install(registry: Registry) -> None:
    """Replaces what sleeps, waits for files, sockets and children, and reads from the terminal."""
    _sleep(registry)
    selecting.install(registry)
    _files(registry)
    _sockets(registry)
    _children(registry)
    registry.on_import("multiprocessing.connection", lambda module: _connections(registry, module))
    registry.on_import("multiprocessing.synchronize", lambda module: _semaphores(registry, module))
    registry.on_import("fcntl", lambda module: _file_locks(registry, module))


def _sleep(registry: Registry) -> None:
    real = time.sleep

    def sleep(seconds: Any, /) -> None:
        run = runtime.current()
        if run is None or not isinstance(seconds, (int, float)) or not 0 <= seconds < 1e9:
            real(seconds)  # It has the right message.
        else:
            run.baton.sleep(float(seconds))

    registry.patches.set(time, "sleep", _in_rank(real, sleep))


def _files(registry: Registry) -> None:
    real_read, real_write, real_input = os.read, os.write, builtins.input

    def read(fd: int, length: int, /) -> bytes:
        data = real_read(fd, length) if ready(fd) else outside(real_read, fd, length)
        assert isinstance(data, bytes)
        return data

    def write(fd: int, data: Any, /) -> int:
        return int(real_write(fd, data) if ready(fd, write=True) else outside(real_write, fd, data))

    registry.patches.set(os, "read", _in_rank(real_read, read))
    registry.patches.set(os, "write", _in_rank(real_write, write))

    def ask(*args: Any) -> str:
        return str(real_input(*args) if debugger.open_prompts else outside(real_input, *args))

    registry.patches.set(builtins, "input", _in_rank(real_input, ask))


def _sockets(registry: Registry) -> None:
    def waiting(original: Any, for_write: bool | None) -> Any:
        @functools.wraps(original)
        def method(self: socket.socket, *args: Any, **kwargs: Any) -> Any:
            if current_rank() is None:
                return original(self, *args, **kwargs)
            if for_write:
                selecting.wake_idle_loops()  # They look when this thread hands over, after it has sent.
            if self.gettimeout() == 0:
                return original(self, *args, **kwargs)
            if for_write is not None and ready(self.fileno(), write=for_write):
                return original(self, *args, **kwargs)
            return outside(original, self, *args, **kwargs)

        return method

    for name in ("recv", "recv_into", "recvfrom", "recvfrom_into", "recvmsg", "recvmsg_into"):
        registry.patches.wrap(socket.socket, name, lambda original: waiting(original, False))
    for name in ("send", "sendto", "sendmsg"):
        registry.patches.wrap(socket.socket, name, lambda original: waiting(original, True))
    for name in ("connect", "connect_ex", "sendall"):
        registry.patches.wrap(socket.socket, name, lambda original: waiting(original, None))
    real_accept = socket.socket._accept if hasattr(socket.socket, "_accept") else None
    if real_accept is not None:
        registry.patches.set(socket.socket, "_accept", waiting(real_accept, False))


def _children(registry: Registry) -> None:
    no_hang = getattr(os, "WNOHANG", 0)

    def waiting(original: Any, at: int) -> Any:
        def wait(*args: Any) -> Any:
            options = args[at] if len(args) > at else 0
            if options & no_hang:
                return original(*args)
            now = original(*args[:at], options | no_hang)
            return now if now and now[0] else outside(original, *args)

        return _in_rank(original, wait)

    for name, at in (("waitpid", 1), ("wait4", 1), ("wait3", 0)):
        registry.patches.wrap(os, name, functools.partial(waiting, at=at))
    for name in ("wait", "waitid"):
        registry.patches.wrap(os, name, lambda original: _in_rank(original, functools.partial(outside, original)))

    def communicating(original: Any) -> Any:
        @functools.wraps(original)
        def communicate(self: Any, input: Any = None, timeout: float | None = None) -> Any:
            pipes = [pipe for pipe in (self.stdout, self.stderr) if pipe is not None]
            if current_rank() is None or timeout is not None or self.stdin is not None or len(pipes) != 1:
                return original(self, input, timeout)
            text = outside(pipes[0].read)
            pipes[0].close()
            self.wait()
            return (text, None) if self.stdout is not None else (None, text)

        return communicate

    registry.patches.wrap(subprocess.Popen, "communicate", communicating)
    registry.patches.wrap(subprocess.Popen, "_wait", _waiting_for_child)


def _waiting_for_child(original: Any) -> Any:
    """With a time-out it would look and sleep in turn; a child needs real time."""

    @functools.wraps(original)
    def wait(self: Any, timeout: float | None) -> Any:
        if current_rank() is None or timeout is None or self.returncode is not None or _waitid is None:
            return original(self, timeout)
        if not outside(_has_ended, self.pid, timeout):
            raise subprocess.TimeoutExpired(self.args, timeout)
        return original(self, None)

    return wait


def _has_ended(pid: int, timeout: float) -> bool:
    """Whether a child ends in time. It stays to be waited for."""
    assert _waitid is not None
    end, pause = _monotonic() + timeout, 0.0005
    while True:
        try:
            if _waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return True
        except ChildProcessError:  # Somebody else waited for it.
            return True
        left = end - _monotonic()
        if left <= 0:
            return False
        pause = min(2 * pause, left, 0.05)
        _sleep_really(pause)


def _connections(registry: Registry, module: Any) -> None:
    """Its methods hold the real `os.read` as a default."""
    connection = module.Connection

    def make(original: Any, patched: str) -> Any:
        @functools.wraps(original)
        def method(self: Any, data: Any, *rest: Any) -> Any:
            return original(self, data, *(rest or (getattr(os, patched),)))

        return method

    if hasattr(connection, "_recv") and os.name == "posix":
        registry.patches.wrap(connection, "_recv", lambda original: make(original, "read"))
        registry.patches.wrap(connection, "_send", lambda original: make(original, "write"))


def _semaphores(registry: Registry, module: Any) -> None:
    def making(original: Any) -> Any:
        @functools.wraps(original)
        def make_methods(self: Any) -> None:
            original(self)
            real = self._semlock.acquire

            def acquire(block: bool = True, timeout: float | None = None) -> bool:
                if current_rank() is None or not block:
                    return bool(real(block, timeout))
                return bool(real(False) or outside(real, block, timeout))

            self.acquire = acquire

        return make_methods

    registry.patches.wrap(module.SemLock, "_make_methods", making)


def _file_locks(registry: Registry, module: Any) -> None:
    """Between ranks of this process `flock` works; `lockf` cannot: its locks belong to the whole process."""

    def locking(original: Any) -> Any:
        def flock(fd: Any, operation: int, /) -> None:
            if operation & (module.LOCK_NB | module.LOCK_UN):
                original(fd, operation)
                return
            try:
                original(fd, operation | module.LOCK_NB)
            except BlockingIOError:
                outside(original, fd, operation)

        return _in_rank(original, flock)

    registry.patches.wrap(module, "flock", locking)
