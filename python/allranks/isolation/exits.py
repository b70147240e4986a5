"""The end of a rank: `atexit`, threads that are still there, executors, and `os._exit`."""

from __future__ import annotations

import atexit
import functools
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from allranks import runtime
from allranks._allranks import RankAborted, current_rank, current_task
from allranks.isolation.modules import is_users_file
from allranks.isolation.registry import Registry
from allranks.runtime import Runtime

_Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
_registered: dict[int, list[_Call]] = {}
_hard_exit: Callable[[int, int, int | None], None] | None = None
#: Nobody ever releases it: where threads of dead ranks wait.
_never = threading.Lock()


def status_of(stop: SystemExit) -> int:
    """The exit status that Python would give; a message goes to stderr."""
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xFF
    print(stop.code, file=sys.stderr)
    return 1


def install(registry: Registry) -> None:
    """Replaces `atexit` and `os._exit`."""
    _registered.clear()
    if not _never.locked():
        _never.acquire()
    patches = registry.patches
    patches.wrap(atexit, "register", _registering)
    patches.wrap(atexit, "unregister", _unregistering)
    patches.wrap(atexit, "_run_exitfuncs", _in_rank(lambda: run_atexit(current_rank())))
    patches.wrap(atexit, "_clear", _in_rank(lambda: _mine().clear()))
    patches.wrap(atexit, "_ncallbacks", _in_rank(lambda: len(_mine())))
    patches.wrap(os, "_exit", _exiting)
    patches.wrap(os, "abort", _aborting)
    registry.on_import("concurrent.futures.thread", lambda module: registry.entry(vars(module), "_shutdown"))


def _mine() -> list[_Call]:
    return _registered.setdefault(current_rank() or 0, [])


def _in_rank(instead: Callable[[], Any]) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        @functools.wraps(original)
        def function() -> Any:
            return original() if current_rank() is None else instead()

        return function

    return make


def _registering(original: Any) -> Any:
    @functools.wraps(original)
    def register(func: Any, /, *args: Any, **kwargs: Any) -> Any:
        if current_rank() is None or _is_shared(sys._getframe(1)):
            return original(func, *args, **kwargs)
        if not callable(func):
            raise TypeError("the first argument must be callable")
        _mine().append((func, args, kwargs))
        return func

    return register


def _is_shared(frame: Any) -> bool:
    """A package registers once for the whole process: when it is imported, or a finalizer of `weakref`."""
    name = frame.f_globals.get("__name__")
    if name == "weakref":
        return True
    return frame.f_code.co_name == "<module>" and name != "__main__" and not is_users_file(frame.f_code.co_filename)


def _unregistering(original: Any) -> Any:
    @functools.wraps(original)
    def unregister(func: Any, /) -> None:
        if current_rank() is not None:
            mine = _mine()
            mine[:] = [call for call in mine if call[0] != func]
        else:
            original(func)

    return unregister


def run_atexit(rank: int | None) -> None:
    """Runs what the rank registered, last first; an error is shown and the rest still runs."""
    calls = _registered.get(-1 if rank is None else rank, [])
    while calls:
        func, args, kwargs = calls.pop()
        try:
            func(*args, **kwargs)
        except RankAborted:
            raise
        except BaseException as error:
            print(f"Exception ignored in atexit callback {func!r}:", file=sys.stderr)
            traceback.print_exception(type(error), error, error.__traceback__)


def begin_rank(rank: int) -> None:
    """Called on the rank's thread before its program."""
    _registered[rank] = []


def end_rank(run: Runtime, rank: int) -> None:
    """What the interpreter does at its end: work of executors is finished, threads are joined, `atexit` runs."""
    _end_executors(run, rank)
    tasks = {task for task, owner, daemon, state in run.baton.tasks() if owner == rank and not daemon}
    for task in sorted(tasks):
        thread = run.task_threads.get(task)
        if thread is not None and thread is not run.main_threads[rank]:
            thread.join()
    run_atexit(rank)


def _end_executors(run: Runtime, rank: int) -> None:
    from allranks.isolation.threads import rank_of

    module = sys.modules.get("concurrent.futures.thread")
    if module is None:
        return
    workers = [(t, q) for t, q in list(module._threads_queues.items()) if rank_of(t) == rank]
    if not workers:
        return
    module._shutdown = True  # type: ignore[attr-defined]
    for _, queue in workers:
        queue.put(None)
    for thread, _ in workers:
        thread.join()


def on_hard_exit(run: Runtime, act: Callable[[int, int, int | None], None]) -> None:
    """`act(rank, status, signal)` is called when a rank calls `os._exit`, or a signal ends it."""
    global _hard_exit
    _hard_exit = act
    run.registry.at_close.append(lambda: on_hard_exit_forget())


def on_hard_exit_forget() -> None:
    """After the run."""
    global _hard_exit
    _hard_exit = None


def _exiting(original: Any) -> Any:
    @functools.wraps(original)
    def exit_now(status: int) -> None:
        rank, run = current_rank(), runtime.current()
        if rank is None or run is None or _hard_exit is None:
            original(status)
            return
        end_now(run, rank, status & 0xFF)

    return exit_now


def _aborting(original: Any) -> Any:
    @functools.wraps(original)
    def abort() -> None:
        rank, run = current_rank(), runtime.current()
        if rank is None or run is None or _hard_exit is None:
            original()
            return
        end_now(run, rank, 128 + signal.SIGABRT, signal.SIGABRT)

    return abort


def end_now(run: Runtime, rank: int, status: int, by: int | None = None) -> None:
    """Ends the rank as if its process were gone: none of its threads ever runs again. Does not return."""
    assert _hard_exit is not None
    me = current_task()
    _hard_exit(rank, status, by)
    end_threads(run, rank)
    if me is not None:
        run.baton.finish()
        _never.acquire()


def end_threads(run: Runtime, rank: int) -> None:
    """The process of the rank is gone: none of its other threads runs again."""
    me = current_task()
    for task, owner, _, state in run.baton.tasks():
        if owner == rank and state != "done" and (me is None or task != me[0]):
            run.baton.abandon(task)
