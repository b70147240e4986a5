"""torch's profiler: its recorder of events (kineto) is one for the process."""

from __future__ import annotations

from allranks.isolation.registry import Registry


def install(registry: Registry) -> None:
    """Nothing yet."""
