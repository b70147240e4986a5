"""torch's profiler on several ranks at once.

The recorder of operators belongs to a thread: each rank gets its own events. But the tracer behind it (kineto) is one
for the process: a second trace cancels the first, whose file can then not be written (C++ crashes). Results of traces
that overlapped write their file from their own events instead; a profile that was alone keeps kineto's.
"""

from __future__ import annotations

import functools
import json
from typing import Any

from allranks._allranks import current_rank
from allranks.isolation.registry import Registry


class _Trace:
    """A trace that is going on."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.overlapped = False


class OverlappedResult:
    """What the profiler of one rank recorded while other ranks profiled too."""

    def __init__(self, result: Any, rank: int) -> None:
        self._result, self._rank = result, rank

    def __getattr__(self, name: str) -> Any:
        return getattr(self._result, name)

    def save(self, path: str) -> None:
        """Writes a Chrome trace of the operators."""
        events = [
            {
                "ph": "X",
                "cat": "cpu_op",
                "name": event.name(),
                "pid": self._rank,
                "tid": event.start_thread_id(),
                "ts": event.start_ns() / 1000,
                "dur": event.duration_ns() / 1000,
                "args": {"Input Dims": event.shapes()},
            }
            for event in self._result.events()
        ]
        with open(path, "w") as file:
            json.dump({"schemaVersion": 1, "traceEvents": events}, file)


def install(registry: Registry) -> None:
    """Waits for `torch.autograd.profiler`."""
    registry.on_import("torch.autograd.profiler", lambda profiler: _private(registry, profiler))


def _private(registry: Registry, profiler: Any) -> None:
    going_on: dict[int, _Trace] = {}

    def preparing(original: Any) -> Any:
        @functools.wraps(original)
        def prepare(*args: Any, **kwargs: Any) -> Any:
            rank = current_rank()
            if rank is not None:
                going_on[rank] = _Trace(rank)
                if len(going_on) > 1:
                    for other in going_on.values():
                        other.overlapped = True
            return original(*args, **kwargs)

        return prepare

    def ending(original: Any) -> Any:
        @functools.wraps(original)
        def disable(*args: Any, **kwargs: Any) -> Any:
            rank = current_rank()
            trace = going_on.pop(rank, None) if rank is not None else None
            result = original(*args, **kwargs)
            return OverlappedResult(result, trace.rank) if trace is not None and trace.overlapped else result

        return disable

    registry.patches.wrap(profiler, "_prepare_profiler", preparing)
    registry.patches.wrap(profiler, "_disable_profiler", ending)
