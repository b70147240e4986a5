"""The virtual clock: what the functions that tell the time say on the threads of ranks.

Time is what really passed and what was jumped, the same for all ranks, so a loop that waits for a time comes to an
end. Modules that bound the functions under names of their own (`from time import monotonic`) are found as well. What
cannot be seen: `datetime.now()`, which asks the system from C; default arguments, names in closures and classes; other
C code.
"""

from __future__ import annotations

import functools
import sched
import sys
import time
import types
from collections.abc import Callable, Mapping
from typing import Any

from allranks import runtime
from allranks._allranks import JumpingClock, current_rank
from allranks.isolation.registry import Registry

_SECONDS = ("time", "monotonic", "perf_counter")
_NANOSECONDS = tuple(f"{name}_ns" for name in _SECONDS)
#: One for each function as long as the process lives: a module that is imported in a run may keep it.
_CLOCKS: dict[str, tuple[Any, JumpingClock]] = {
    name: (getattr(time, name), JumpingClock(getattr(time, name), nanoseconds=name in _NANOSECONDS))
    for name in (*_SECONDS, *_NANOSECONDS)
}
_PASSING = frozenset(
    getattr(time, name)
    for name in ("CLOCK_REALTIME", "CLOCK_MONOTONIC", "CLOCK_MONOTONIC_RAW", "CLOCK_BOOTTIME", "CLOCK_TAI")
    if hasattr(time, name)
)
"""Clocks of the system that go on while a process sleeps."""
_real_sleep = time.sleep if not hasattr(time.sleep, "__wrapped__") else time.sleep.__wrapped__
_bound: dict[str, tuple[types.ModuleType, list[tuple[str, Any]]]] = {}
"""By module: which of its names stand for one of the functions."""


def install(registry: Registry) -> None:
    """Replaces the functions, wherever they are bound, and those that format the present time."""
    patches = registry.patches
    replaced: dict[int, Any] = {id(_real_sleep): time.sleep}
    for name, (real, clock) in _CLOCKS.items():
        patches.set(time, name, clock)
        replaced[id(real)] = clock
    for name in ("clock_gettime", "clock_gettime_ns"):
        patches.wrap(time, name, functools.partial(_asking, 1 if name.endswith("_ns") else 1e-9))
    for name in ("localtime", "gmtime", "ctime"):
        patches.wrap(time, name, functools.partial(_telling, 0, lambda: time.time()))
    for name, at in (("asctime", 0), ("strftime", 1)):
        patches.wrap(time, name, functools.partial(_telling, at, lambda: time.localtime()))
    patches.wrap(sched.scheduler, "__init__", _scheduling)
    _rebind(registry, replaced)


def _rebind(registry: Registry, replaced: Mapping[int, Any]) -> None:
    """Replaces functions in all modules that bound them under any name."""
    names = {id(_real_sleep), *(id(real) for real, _ in _CLOCKS.values())}
    for name, module in list(sys.modules.items()):
        if not isinstance(module, types.ModuleType) or module is time or name.startswith("allranks."):
            continue
        known = _bound.get(name)
        if known is None or known[0] is not module:
            found = [(attribute, value) for attribute, value in list(vars(module).items()) if id(value) in names]
            known = _bound[name] = (module, found)
        for attribute, value in known[1]:
            if vars(module).get(attribute) is value:
                registry.patches.set(module, attribute, replaced[id(value)])


def _jumped() -> int:
    """Nanoseconds, on the thread of a rank; else 0."""
    run = runtime.current()
    return run.baton.jumped_ns if run is not None and current_rank() is not None else 0


def _asking(unit: float, real: Any) -> Callable[[int], Any]:
    @functools.wraps(real)
    def clock_gettime(clk_id: int, /) -> Any:
        return real(clk_id) + (_jumped() * unit if clk_id in _PASSING else 0)

    return clock_gettime


def _telling(at: int, now: Callable[[], Any], real: Any) -> Callable[..., Any]:
    """`real` takes the present time if its argument number `at` is left out or None."""

    @functools.wraps(real)
    def tell(*args: Any) -> Any:
        left_out = len(args) == at or (len(args) == at + 1 and args[at] is None)
        return real(*args[:at], now()) if left_out and _jumped() else real(*args)

    return tell


def _scheduling(real: Any) -> Any:
    """Its defaults are bound to the real functions."""

    @functools.wraps(real)
    def init(self: Any, timefunc: Any = None, delayfunc: Any = None) -> None:
        real(self, timefunc or time.monotonic, delayfunc or time.sleep)

    return init
