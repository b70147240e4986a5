"""Leaving the baton for a call into the system, and who is asked to."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from allranks import runtime
from allranks._allranks import current_rank


def outside(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Makes the call while others run. It must not touch anything that is private to a rank."""
    run = runtime.current()
    if run is None or current_rank() is None:
        return call(*args, **kwargs)
    run.baton.go_outside()
    try:
        return call(*args, **kwargs)
    finally:
        run.baton.come_back()


def let_others_run() -> None:
    """A turn behind all that can run; ends at once if nobody can."""
    run = runtime.current()
    if run is not None and current_rank() is not None:
        run.baton.sleep(0.0)


def in_rank(original: Callable[..., Any], instead: Callable[..., Any]) -> Callable[..., Any]:
    """`instead` on the threads of ranks, `original` elsewhere."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs) if current_rank() is None else instead(*args, **kwargs)

    return wrapper
