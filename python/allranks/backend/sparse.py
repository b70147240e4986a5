"""all_reduce of sparse COO tensors: torch operations, carried out by the rank that comes last."""

from __future__ import annotations

from collections.abc import Callable

import torch

_SUM = 0


def check(t: torch.Tensor, op: tuple[int, float]) -> None:
    """Refuses what gloo refuses."""
    if t.layout is not torch.sparse_coo:
        raise RuntimeError(f"ProcessGroupGloo::allreduce: unsupported layout {t.layout}")
    if op[0] != _SUM:
        raise RuntimeError(
            "ProcessGroupGloo::allreduce: unsupported reduction operation "
            "(allreduce of sparse tensors only works with ReduceOp.SUM)"
        )


def combine(tensors: list[torch.Tensor]) -> None:
    """Leaves the coalesced sum, added in the order of ranks by torch's own addition as in gloo, in each tensor."""
    with torch.no_grad():
        total, *others = [t.coalesce() for t in tensors]
        for other in others:
            total = total + other
        total = total.coalesce()
        for t in tensors:
            t.copy_(total)


def after(t: torch.Tensor) -> Callable[[], None] | None:
    """What autograd has to see of it: the sum was copied into the tensor."""
    if not (t.requires_grad and torch.is_grad_enabled()):
        return None

    def copy() -> None:
        t.copy_(t.detach())

    return copy
