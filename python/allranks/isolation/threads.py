"""Threads that a rank starts belong to that rank: they take turns like ranks do, with the rank's state in place."""

from __future__ import annotations

import _thread
import ctypes
import functools
import threading
from collections.abc import Callable
from typing import Any

from allranks import runtime
from allranks._allranks import RankAborted, current_rank, current_task
from allranks.isolation.registry import Registry

_real_start = threading.Thread.start
_real_join = threading.Thread.join
_real_main_thread = threading.main_thread


class _Membership:
    """Which rank and task a thread is, and who waits for its end."""

    def __init__(self, rank: int, task: int, inherited: list[Any]) -> None:
        self.rank, self.task, self.inherited = rank, task, inherited
        self.done = False
        self.waiting: list[int] = []


class RankThread(threading.Thread):
    """The thread of a rank's program. To the program it is the main thread."""

    def __init__(self, *, target: Callable[..., None], args: tuple[Any, ...], rank: int) -> None:
        # A daemon, so that one that never ends does not keep the process; the program sees an ordinary main thread.
        super().__init__(target=target, args=args, name="MainThread", daemon=True)
        self.rank = rank

    def start_outside(self) -> None:
        """Starts it from a thread that belongs to no rank."""
        _real_start(self)

    def join_outside(self, seconds: float) -> None:
        """Waits for it on a thread that belongs to no rank."""
        _real_join(self, seconds)

    def run(self) -> None:
        self._daemonic = False
        super().run()


def rank_of(thread: threading.Thread) -> int | None:
    """The rank that a thread belongs to."""
    if isinstance(thread, RankThread):
        return thread.rank
    membership: _Membership | None = vars(thread).get("_allranks")
    return None if membership is None else membership.rank


def install(registry: Registry) -> None:
    """Replaces what starts, joins and lists threads."""
    patches = registry.patches
    patches.set(threading.Thread, "start", _starting(registry))
    patches.set(threading.Thread, "_bootstrap", _bootstrapping(registry))
    patches.set(threading.Thread, "join", functools.wraps(_real_join)(_join))
    patches.wrap(threading.Thread, "is_alive", _being_alive)
    patches.wrap(threading, "main_thread", _main)
    patches.wrap(threading, "enumerate", _listing)
    patches.wrap(threading, "active_count", lambda _: lambda: len(threading.enumerate()))
    patches.wrap(_thread, "start_new_thread", lambda real: _starting_function(registry, real))
    patches.wrap(threading, "excepthook", _hook)
    registry.entry(vars(threading), "excepthook")


def _starting(registry: Registry) -> Callable[[threading.Thread], None]:
    @functools.wraps(_real_start)
    def start(self: threading.Thread) -> None:
        rank, run = current_rank(), runtime.current()
        if rank is None or run is None or self._started.is_set():  # type: ignore[attr-defined]
            _real_start(self)
            return
        task = run.baton.spawn(rank, daemon=self.daemon or _is_worker(self))
        membership = _Membership(rank, task, [capture() for capture, _ in registry.thread_state])
        # One from before the run would not hand over.
        self._started = threading.Event() if self.daemon else _Started(self)  # type: ignore[attr-defined]
        self._allranks = membership  # type: ignore[attr-defined]
        run.task_threads[task] = self
        try:
            _real_start(self)
        except RuntimeError:  # The system gives no more threads.
            run.baton.abandon(task)
            raise

    return start


class _Started(threading.Event):
    """Lets the interpreter start a thread as a daemon, which the program sees as an ordinary one.

    The interpreter waits at its end for ordinary threads, those that a rank left standing for ever among them.
    """

    def __init__(self, thread: Any) -> None:
        super().__init__()
        self._thread = thread
        thread._daemonic = True

    def set(self) -> None:
        self._thread._daemonic = False
        super().set()


def _is_worker(thread: threading.Thread) -> bool:
    """Workers of an executor wait for work for ever; the end of the rank ends them (see `exits`)."""
    target = getattr(thread, "_target", None)
    return getattr(target, "__module__", None) == "concurrent.futures.thread"


def _bootstrapping(registry: Registry) -> Callable[[threading.Thread], None]:
    real: Any = threading.Thread._bootstrap  # type: ignore[attr-defined]

    @functools.wraps(real)
    def bootstrap(self: threading.Thread) -> None:
        membership: _Membership | None = vars(self).get("_allranks")
        run = runtime.current()
        if membership is None or run is None:
            real(self)
            return
        try:
            run.baton.attach(membership.task, membership.rank)
            for (_, apply), value in zip(registry.thread_state, membership.inherited, strict=False):
                apply(value)
            real(self)
        except RankAborted:
            pass
        finally:
            if current_task() is not None:
                membership.done = True
                for task in membership.waiting:
                    run.baton.wake(task)
                run.task_threads.pop(membership.task, None)
                run.baton.finish()

    return bootstrap


def _join(self: threading.Thread, timeout: float | None = None) -> None:
    rank, run = current_rank(), runtime.current()
    membership: _Membership | None = vars(self).get("_allranks")
    task = current_task()
    if rank is None or run is None or task is None or membership is None or membership.task == task[0]:
        _real_join(self, timeout)
        return
    patience = None if timeout is None else max(timeout, 0.0)
    while not membership.done:
        membership.waiting.append(task[0])
        if run.baton.block(patience) == "timed-out":
            membership.waiting.remove(task[0])
            return
    _real_join(self)  # The rest is the interpreter's own work.


def _being_alive(real: Any) -> Any:
    @functools.wraps(real)
    def is_alive(self: threading.Thread) -> bool:
        membership: _Membership | None = vars(self).get("_allranks")
        if membership is not None and membership.done:
            return False
        alive = bool(real(self))
        run = runtime.current()
        if alive and membership is not None and run is not None and current_rank() is not None:
            run.baton.sleep(0.0)  # A loop that asks must let the thread run.
            alive = not membership.done
        return alive

    return is_alive


def _main(real: Any) -> Any:
    @functools.wraps(real)
    def main_thread() -> threading.Thread:
        rank, run = current_rank(), runtime.current()
        thread = real() if rank is None or run is None else run.main_threads.get(rank, real())
        assert isinstance(thread, threading.Thread)
        return thread

    return main_thread


def _listing(real: Any) -> Any:
    @functools.wraps(real)
    def enumerate_threads() -> list[threading.Thread]:
        rank = current_rank()
        return [t for t in real() if rank is None or rank_of(t) == rank]

    return enumerate_threads


def _starting_function(registry: Registry, real: Any) -> Any:
    """`_thread.start_new_thread`: without a Thread object, a daemon."""

    @functools.wraps(real)
    def start_new_thread(function: Any, args: Any, kwargs: Any = None) -> int:
        if current_rank() is None:
            return int(real(function, args, kwargs or {}))
        thread = threading.Thread(target=function, args=args, kwargs=kwargs or {}, daemon=True)
        thread.start()
        return thread.ident or 0

    return start_new_thread


def _hook(real: Any) -> Any:
    @functools.wraps(real)
    def excepthook(args: Any, /) -> None:
        if args.exc_type is not RankAborted:
            real(args)

    return excepthook


def raise_in_thread(thread: threading.Thread, kind: type[BaseException]) -> None:
    """Raises `kind` in a thread as soon as it next runs a line of Python."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(kind))


def start_for(run: runtime.Runtime, rank: int, act: Callable[[], None]) -> None:
    """Runs `act` on a new thread of a rank that need not be the caller's, as a daemon; does not wait for it."""
    task = run.baton.spawn(rank, daemon=True)

    def body() -> None:
        try:
            run.baton.attach(task, rank)
            act()
        except RankAborted:
            pass
        finally:
            if current_task() is not None:
                run.baton.finish()

    _start_thread(body, ())
    run.baton.start()  # Nobody may be running.


_start_thread = _thread.start_new_thread
