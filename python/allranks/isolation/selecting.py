"""Waiting for files and sockets: `select`, selectors, and event loops that wait for nothing but time."""

from __future__ import annotations

import functools
import select
import selectors
import time
from collections.abc import Callable
from typing import Any

from allranks import runtime
from allranks._allranks import current_rank, current_task
from allranks.isolation.outside import in_rank, let_others_run, outside
from allranks.isolation.registry import Registry


def install(registry: Registry) -> None:
    """Replaces `select` and the selectors."""
    for name, method in (
        ("SelectSelector", "select"),
        ("_PollLikeSelector", "select"),
        ("EpollSelector", "select"),
        ("KqueueSelector", "select"),
        ("DevpollSelector", "select"),
    ):
        owner = getattr(selectors, name, None)
        if owner is not None and method in vars(owner):
            registry.patches.wrap(owner, method, _selecting)

    real = select.select

    def select_outside(r: Any, w: Any, x: Any, timeout: float | None = None, /) -> Any:
        found = real(r, w, x, 0)
        if not any(found) and timeout != 0:
            if timeout is not None and not (r or w or x):
                time.sleep(timeout)
                return found
            return outside(real, r, w, x, timeout)
        let_others_run()
        return found

    registry.patches.set(select, "select", in_rank(real, select_outside))


def _selecting(original: Any) -> Any:
    @functools.wraps(original)
    def select_ready(self: Any, timeout: float | None = None) -> Any:
        if current_rank() is None:
            return original(self, timeout)
        found = original(self, 0)
        if not found and (timeout is None or timeout > 0):
            if _is_idle_loop(self):
                return _wait_for_threads(lambda: original(self, 0), timeout)
            return outside(original, self, timeout)
        # Who asks in a loop must let those run that change the answer: a pool's thread waits for what another reads.
        let_others_run()
        return found

    return select_ready


#: Tasks that wait for a byte which another thread of their rank will send.
_idle: set[int] = set()


def _is_idle_loop(selector: Any) -> bool:
    """Whether under a virtual clock an event loop of asyncio waits for nothing but its timers and its threads."""
    run = runtime.current()
    if run is None or not run.baton.is_virtual:
        return False
    readers = [key.data[0] for key in selector.get_map().values() if isinstance(key.data, tuple) and key.data]
    own = [r for r in readers if getattr(getattr(r, "_callback", None), "__name__", "") == "_read_from_self"]
    return len(own) == len(selector.get_map())


def _wait_for_threads(ask: Callable[[], Any], timeout: float | None) -> Any:
    """Waits in the program's time until `ask` finds something; `send` wakes it."""
    run, task = runtime.current(), current_task()
    assert run is not None and task is not None
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        found = ask()
        left = None if end is None else end - time.monotonic()
        if found or (left is not None and left <= 0):
            return found
        _idle.add(task[0])
        try:
            if left is None:
                run.baton.block()
            else:
                run.baton.sleep(left)
        finally:
            _idle.discard(task[0])


def wake_idle_loops() -> None:
    """A thread sends something: they look when it hands over, after it has sent."""
    run = runtime.current()
    for task in sorted(_idle):
        if run is not None:
            run.baton.wake(task)
