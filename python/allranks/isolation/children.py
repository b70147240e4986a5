"""Child processes: a forked one is no rank, and every one gets the rank's environment and all CPUs."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from typing import Any

from allranks import runtime
from allranks._allranks import current_rank, forget_current_task
from allranks.isolation import placement
from allranks.isolation.registry import Registry

_hooked = False


def install(registry: Registry) -> None:
    """Hooks into fork and into what starts programs."""
    global _hooked
    if not _hooked and hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before_fork, after_in_child=_in_child)
        _hooked = True
    patches = registry.patches
    try:
        import _posixsubprocess
    except ImportError:
        return
    real = _posixsubprocess.fork_exec
    starting = _starting(real)
    patches.set(_posixsubprocess, "fork_exec", starting)
    if getattr(subprocess, "_fork_exec", None) is real:
        patches.set(subprocess, "_fork_exec", starting)
    for name in ("posix_spawn", "posix_spawnp", "execv", "execvp", "execl", "execlp"):
        patches.wrap(os, name, _starting)
    patches.wrap(os, "system", _system)
    patches.wrap(subprocess.Popen, "_execute_child", _quietly)
    registry.on_import("multiprocessing.util", lambda module: _finalizers(registry, module))


def _before_fork() -> None:
    if current_rank() is not None:
        match_c_environment()


def _in_child() -> None:
    """The only thread of a forked child: no run, no baton, every CPU."""
    if current_rank() is None:
        return
    placement.unpin()
    forget_current_task()
    runtime.set_current(None)


def match_c_environment() -> None:
    """C's environment, which programs inherit, becomes that of the rank that runs now."""
    wanted: dict[Any, Any] = os.environ._data  # type: ignore[attr-defined]
    for key in _in_c:
        if key not in wanted:
            os.unsetenv(key)
    _in_c.clear()
    for key, value in wanted.items():
        os.putenv(key, value)
        _in_c.add(key)


#: Keys that C's environment may have.
_in_c: set[Any] = set()


def _starting(original: Any) -> Any:
    @functools.wraps(original)
    def start(*args: Any, **kwargs: Any) -> Any:
        if current_rank() is None:
            return original(*args, **kwargs)
        match_c_environment()
        pinned = placement.unpin()
        try:
            return original(*args, **kwargs)
        finally:
            if pinned:
                placement.pin()

    return start


def _system(original: Any) -> Any:
    """As a child of the rank: the one in C would read C's environment while another rank may be changing it."""

    @functools.wraps(original)
    def system(command: Any) -> int:
        if current_rank() is None:
            return int(original(command))
        code = subprocess.call(["/bin/sh", "-c", command])
        return code << 8 if code >= 0 else -code

    return system


def _quietly(original: Any) -> Any:
    """The parent reads a pipe until the child has started: too short to let others run."""

    @functools.wraps(original)
    def execute_child(*args: Any, **kwargs: Any) -> Any:
        if current_rank() is None:
            return original(*args, **kwargs)
        read = os.read
        os.read = getattr(read, "__wrapped__", read)
        try:
            return original(*args, **kwargs)
        finally:
            os.read = read

    return execute_child


def _finalizers(registry: Registry, util: Any) -> None:
    """Each rank has its own list of child processes and ends them when it ends, as a process would."""
    process = sys.modules["multiprocessing.process"]
    registry.entry(vars(process), "_children", fresh=lambda children: type(children)())
    registry.entry(vars(process), "_process_counter", fresh=lambda _: _counter())

    def finalizing(original: Any) -> Any:
        @functools.wraps(original)
        def finalize(self: Any, wr: Any = None) -> Any:
            return original(self, wr, getpid=os.getpid)  # Its default is the one from when the module was imported.

        return finalize

    registry.patches.wrap(util.Finalize, "__call__", finalizing)

    def end(_rank: int) -> None:
        import signal

        children = [child for child in process._children if child._popen is not None]
        for child in children:
            if child.daemon and child.is_alive():
                try:
                    os.kill(child.pid, signal.SIGTERM)
                except OSError:
                    pass
        for child in children:
            child.join()

    registry.at_rank_end.append(end)


def _counter() -> Any:
    import itertools

    return itertools.count(1)
