"""all_reduce of sparse COO tensors: torch operations, carried out by the rank that comes last."""

from __future__ import annotations

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
    """Leaves the coalesced sum, added in the order of ranks, in each tensor."""
    with torch.no_grad():
        parts = [t.coalesce() for t in tensors]
        indices = torch.cat([p.indices() for p in parts], dim=1)
        values = torch.cat([p.values() for p in parts], dim=0)
        total = torch.sparse_coo_tensor(indices, values, parts[0].shape).coalesce()
        for t in tensors:
            t.copy_(total)
