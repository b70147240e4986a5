"""Signals: each rank has its own table of handlers.

A signal that a rank sends to its own `os.getpid()`, or to another rank's, is delivered to that rank alone. One that the
system delivers to the process goes to every rank that has a handler, each on a thread of its own with that rank's state
in place. Ctrl-C belongs to the launcher.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
from typing import Any

from allranks import runtime
from allranks._allranks import RankAborted, current_rank
from allranks.isolation import environment, threads
from allranks.isolation.registry import Registry

_tables: dict[int, dict[int, Any]] = {}
_pending: dict[int, list[int]] = {}
#: How often each rank has set its alarm: an older one does not ring.
_alarms: dict[int, int] = {}


def install(registry: Registry) -> None:
    """Replaces `signal.signal`, `getsignal`, `alarm` and `os.kill`."""
    _tables.clear()
    _pending.clear()
    patches = registry.patches
    patches.wrap(signal, "signal", _setting)
    patches.wrap(signal, "getsignal", _getting)
    patches.wrap(signal, "set_wakeup_fd", _not_in_rank(-1))
    patches.wrap(signal, "siginterrupt", _not_in_rank(None))
    patches.wrap(signal, "alarm", _alarm)
    patches.wrap(signal, "raise_signal", _raising)
    patches.wrap(os, "kill", lambda real: _killing(registry, real))


def _table() -> dict[int, Any]:
    return _tables.setdefault(current_rank() or 0, {})


def _not_in_rank(answer: Any) -> Any:
    def make(original: Any) -> Any:
        @functools.wraps(original)
        def function(*args: Any, **kwargs: Any) -> Any:
            return original(*args, **kwargs) if current_rank() is None else answer

        return function

    return make


def _setting(original: Any) -> Any:
    @functools.wraps(original)
    def set_handler(signalnum: int, handler: Any) -> Any:
        if current_rank() is None:
            return original(signalnum, handler)
        if threading.current_thread() is not threading.main_thread():
            raise ValueError("signal only works in main thread of the main interpreter")
        if not callable(handler) and handler not in (signal.SIG_DFL, signal.SIG_IGN):
            raise TypeError("signal handler must be signal.SIG_IGN, signal.SIG_DFL, or a callable object")
        if signalnum in (signal.SIGKILL, signal.SIGSTOP):
            raise OSError(22, "Invalid argument")
        before = signal.getsignal(signalnum)
        _table()[int(signalnum)] = handler
        return before

    return set_handler


def _getting(original: Any) -> Any:
    @functools.wraps(original)
    def get_handler(signalnum: int) -> Any:
        if current_rank() is None:
            return original(signalnum)
        return _table().get(int(signalnum), original(signalnum))

    return get_handler


def wanted() -> set[int]:
    """Signals that some rank has a handler for, for the main thread to catch."""
    return {number for table in list(_tables.values()) for number, handler in list(table.items()) if callable(handler)}


def catch_wanted(caught: dict[int, Any]) -> None:
    """On the main thread: catches what ranks have handlers for; `caught` keeps what was there."""
    for number in wanted() - set(caught) - {int(signal.SIGINT)}:
        try:
            caught[number] = signal.signal(number, from_outside)
        except (OSError, ValueError):
            caught[number] = None


def release(caught: dict[int, Any]) -> None:
    """On the main thread, after the run."""
    for number, handler in caught.items():
        if handler is not None:
            signal.signal(number, handler)


def from_outside(number: int, frame: Any) -> None:
    """On the main thread: the system delivered a signal. Every rank with a handler gets it."""
    run = runtime.current()
    if run is not None:
        for rank, table in sorted(_tables.items()):
            if callable(table.get(number)):
                _deliver(run, rank, number)


def _deliver(run: runtime.Runtime, rank: int, number: int) -> None:
    """Runs the handler of another rank on a thread of its own: the rank's main thread may wait anywhere."""
    threads.start_for(run, rank, lambda: _handle_beside(number))


def _handle_beside(number: int) -> None:
    """On another thread of the rank: what the handler raises is raised in the rank's main thread, as Python does."""
    try:
        _handle(number)
    except RankAborted:
        raise
    except BaseException as error:
        run, rank = runtime.current(), current_rank()
        if run is None or rank is None:
            return
        thread = run.main_threads[rank]
        kind = error if isinstance(error, type) else type(error)
        threads.raise_in_thread(thread, kind)
        for task, owner in list(run.task_threads.items()):
            if owner is thread:
                run.baton.wake(task)


def _handle(number: int) -> None:
    """On a thread of the rank: what the signal does there."""
    from allranks.isolation import exits

    handler = _table().get(number, signal.SIG_DFL)
    run, rank = runtime.current(), current_rank()
    if callable(handler):
        handler(number, None)
    elif handler == signal.SIG_IGN or number in _HARMLESS or run is None or rank is None:
        return
    elif number == signal.SIGINT:
        raise KeyboardInterrupt
    else:
        exits.end_now(run, rank, 128 + number, number)


_HARMLESS = {
    int(getattr(signal, name)) for name in ("SIGCHLD", "SIGURG", "SIGWINCH", "SIGCONT") if hasattr(signal, name)
}


def _raising(original: Any) -> Any:
    @functools.wraps(original)
    def raise_signal(signalnum: int) -> None:
        if current_rank() is None:
            original(signalnum)
        else:
            _handle(int(signalnum))

    return raise_signal


def _killing(registry: Registry, original: Any) -> Any:
    @functools.wraps(original)
    def kill(pid: int, sig: int, /) -> None:
        me, run = current_rank(), runtime.current()
        rank = environment.rank_of_pid(pid, registry.world_size) if me is not None else None
        if rank is None or run is None:
            original(pid, sig)
        elif sig == 0:
            if not run.main_threads[rank].is_alive():
                raise ProcessLookupError(3, "No such process")
        elif rank == me:
            _handle(int(sig))
        else:
            _deliver(run, rank, int(sig))

    return kill


def _alarm(original: Any) -> Any:
    """One clock for each rank."""

    @functools.wraps(original)
    def alarm(seconds: int) -> int:
        rank = current_rank()
        if rank is None:
            return int(original(seconds))
        run = runtime.current()
        _alarms[rank] = _alarms.get(rank, 0) + 1
        if seconds and run is not None:
            # A sleeper, not a timer: the time of a wait may pass at once when nobody else can go on.
            threads.start_for(run, rank, functools.partial(_ring, run, rank, seconds, _alarms[rank]))
        return 0

    return alarm


def _ring(run: runtime.Runtime, rank: int, seconds: float, number: int) -> None:
    run.baton.sleep(seconds)
    if _alarms.get(rank) == number:
        _handle_beside(int(signal.SIGALRM))
