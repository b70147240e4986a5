"""The objects of the run that is going on, where every part finds them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allranks._allranks import Baton, Swapper
    from allranks.isolation.registry import Registry


@dataclass
class Runtime:
    """One run of all ranks."""

    world_size: int
    baton: Baton
    swapper: Swapper
    registry: Registry
    #: The engine, once the backend is installed.
    world: Any = None
    #: What the backends of torch share, once they are installed.
    session: Any = None
    #: The checked command line (`_allranks.RunPlan`), or None for `allranks.run`.
    plan: Any = None
    #: The thread that a rank's program runs in, by rank.
    main_threads: dict[int, threading.Thread] = field(default_factory=dict)
    #: The thread of each task that has one.
    task_threads: dict[int, threading.Thread] = field(default_factory=dict)
    #: Nobody could go on: whoever had not ended then did not end well.
    stalled: bool = False
    #: Where ranks stood (`watchdog.Stand`) when the run could not go on, or was interrupted; empty if it went on.
    stood: list[Any] = field(default_factory=list)


_current: Runtime | None = None


def current() -> Runtime | None:
    """The run that is going on in this process, or None: before, after, and in forked children."""
    return _current


def set_current(runtime: Runtime | None) -> None:
    """Begins or ends a run."""
    global _current
    _current = runtime
