"""What gloo's worker does to a rank's tensors through torch once the data is there, and so what autograd sees of it.

Most results are copied into the outputs with `copy_`, and an average is a sum that is divided with `div_`: versions
grow, a leaf that requires grad is refused, outputs of some operations take part in the graph. Operations that write to
the memory itself (all_reduce, broadcast, scatter...) leave no trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Tensors = list[torch.Tensor]

_AVG = 1
_COPIED = frozenset(
    "all_gather all_gather_into_tensor all_gather_coalesced gather reduce_scatter reduce_scatter_tensor "
    "reduce_scatter_coalesced all_to_all".split()
)
_FROM_INPUTS = frozenset("reduce_scatter reduce_scatter_tensor reduce_scatter_coalesced all_to_all".split())
"""Copied from what was computed from the inputs by operations that autograd knows."""
_DIVIDED_IN_A_COPY = frozenset(("reduce_scatter_tensor", "reduce_scatter_coalesced"))
"""A division that torch refuses leaves the output as it was."""


def after(
    kind: str, inputs: Tensors, outputs: Tensors, op: tuple[int, float] | None, rank: int, size: int
) -> Callable[[], None] | None:
    """What this rank has to do when the operation is complete; None for nothing. Called before it is issued."""
    averages = op is not None and op[0] == _AVG
    if kind in _COPIED:
        targets = outputs
    elif kind == "all_reduce_coalesced" or averages:
        targets = inputs
    else:
        return None
    if all(_bare(t) for t in targets) and not any(t.requires_grad for t in inputs):
        if not (averages and _torch_divides(targets[0])):
            return lambda: torch.autograd.graph.increment_version(targets)
    recording = torch.is_grad_enabled()
    in_copies = kind in _DIVIDED_IN_A_COPY or len(targets) > 1
    kept = [t.detach().clone() for t in targets] if averages and in_copies else None

    def touch() -> None:
        with torch.set_grad_enabled(recording):
            for k, t in enumerate(targets):
                if averages and _torch_divides(t):
                    _divide(t, size, None if kept is None else kept[k])
                elif not (t.is_inference() and torch.is_inference_mode_enabled()):
                    data = t.detach().clone()
                    _trace(t, _source(kind, inputs, t, k, rank, size), size if averages else 1)
                    t.data.copy_(data)

    return touch


def _bare(t: torch.Tensor) -> bool:
    return not t.requires_grad and not t.is_inference()


def _torch_divides(t: torch.Tensor) -> bool:
    return not t.is_floating_point()


def _divide(t: torch.Tensor, size: int, before: torch.Tensor | None) -> None:
    try:
        t.div_(size)
    except Exception:
        if before is not None:
            t.data.copy_(before)
        raise


def _trace(t: torch.Tensor, source: Any, divisor: int) -> None:
    if source is None:
        t.div_(divisor)
    else:
        t.copy_(source if divisor == 1 else source / divisor)


def _source(kind: str, inputs: Tensors, t: torch.Tensor, k: int, rank: int, size: int) -> torch.Tensor | None:
    """Where autograd thinks that the data comes from; None: from the tensor itself, in place."""
    if kind == "all_reduce_coalesced":
        return t.clone()
    if kind == "all_to_all":
        return inputs[k]
    if kind == "reduce_scatter":
        return inputs[rank]
    if kind in _FROM_INPUTS:
        return inputs[k].chunk(size)[rank]
    return t.detach() if kind in _COPIED else None
