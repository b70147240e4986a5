"""Operations as torch's profiler shows them: gloo's names, shapes of the tensors, marked asynchronous.

The event of an operation that is waited for later covers only its handing in. Costs nothing while no profiler is on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

#: By kind of operation.
_TITLES = {
    "all_gather_coalesced": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "all_reduce_coalesced": "all_reduce",
    "all_reduce_sparse": "sparse_all_reduce",
    "all_to_all_single": "all_to_all",
    "reduce_scatter": "all_reduce",  # What gloo makes it of.
    "reduce_scatter_coalesced": "all_reduce",
    "reduce_scatter_tensor": "all_reduce",
}

#: Whether a profiler is on for the calling thread.
is_on: Callable[[], bool] = torch._C._autograd._profiler_enabled  # type: ignore[attr-defined]


#: Names of events that are operations of ours.
_titles: set[str] = set()


def watch(registry: Any) -> None:
    """The profiler takes what begins and ends on one thread for synchronous; gloo's operations end on another."""
    registry.on_import(
        "torch.autograd.profiler",
        lambda module: registry.patches.wrap(module.profile, "_parse_kineto_results", _marking),
    )


def _marking(original: Any) -> Any:
    @functools.wraps(original)
    def parse(self: Any, *args: Any, **kwargs: Any) -> Any:
        events = original(self, *args, **kwargs)
        for event in events:
            if event.name in _titles:
                event.is_async = True
        return events

    return parse


def begin(backend: str, kind: str, tensors: list[torch.Tensor], *, any_source: bool) -> Callable[[], None]:
    """An operation is handed in; call the result when it is complete, or handed in if it is not waited for here."""
    title = f"{backend}:{'recvAnySource' if any_source else _TITLES.get(kind, kind)}"
    _titles.add(title)
    event = torch._C._profiler._RecordFunctionFast(title, tensors)
    event.__enter__()
    return lambda: event.__exit__(None, None, None)
