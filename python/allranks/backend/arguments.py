"""Arguments of operations that only Python can judge: strides, aliases, lists of lists, splits given as rows."""

from __future__ import annotations

import torch

from allranks.backend.session import Session
from allranks.backend.staging import is_dense

Tensors = list[torch.Tensor]


def elements(t: torch.Tensor, rows: list[int], size: int) -> list[int]:
    """Splits of dimension 0 as numbers of elements; no splits are equal ones."""
    first = t.size(0)
    if not rows:
        if first % size:
            raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
        rows = [first // size] * size
    if len(rows) != size:
        raise RuntimeError("Number of tensor splits not equal to group size")
    if min(rows) < 0:
        raise RuntimeError("Split sizes must be non-negative")
    if sum(rows) != first:
        raise RuntimeError("Split sizes doesn't match total dim 0 size")
    width = t.numel() // first if first else 0
    return [r * width for r in rows]


def by_input(lists: list[Tensors], inputs: Tensors, size: int) -> Tensors:
    """The outputs of all_gather_coalesced, given as one list a member, as one list for each input."""
    if len(lists) != size:
        raise RuntimeError("all_gather_coalesced: output lists should be equal to world size")
    for member in lists:
        if len(member) != len(inputs):
            text = f"(expected length {len(inputs)}, got {len(member)})"
            raise RuntimeError(f"all_gather_coalesced: invalid output size: {text}")
    return [member[k] for k in range(len(inputs)) for member in lists]


def warn_strided(session: Session, kind: str, inputs: Tensors, outputs: Tensors) -> None:
    """Reports tensors whose neighbours or whose order of elements gloo gets wrong, since it looks at no strides."""
    # gloo copies the input of all_to_all_single and takes the others' memory as it lies.
    tensors = outputs if kind == "all_to_all_single" else inputs + outputs
    tensors = [t for t in tensors if t.layout is torch.strided]
    for t in tensors:
        if t.is_cpu and not is_dense(t):
            session.find(
                "strided-buffer",
                "error",
                f"{kind} on a strided view of shape {tuple(t.shape)} and strides {t.stride()}: gloo takes it for "
                "dense memory and overwrites its neighbours",
                what=f"{kind} of a strided view",
                hints=["pass t.contiguous(), and copy the result back"],
                rule="gloo: collectives ignore strides",
            )
            return
    if kind == "reduce_scatter" and len({t.stride() for t in tensors if t.numel() > 1}) > 1:
        session.find(
            "strided-buffer",
            "error",
            "reduce_scatter of tensors with different orders of dimensions: gloo adds elements that do not belong "
            "together",
            what="reduce_scatter of transposed and plain tensors",
            hints=["pass t.contiguous()"],
            rule="gloo: collectives ignore strides",
        )


def warn_aliased(session: Session, kind: str, outputs: Tensors) -> None:
    """Reports lists whose entries are one tensor. Views of one storage are fine unless they start at one element."""
    starts = {t.data_ptr() for t in outputs if t.numel()}
    if len(starts) < sum(1 for t in outputs if t.numel()) and outputs[0].device.type != "meta":
        session.find(
            "aliased-buffers",
            "error",
            f"{kind}: several entries of the output list are the same tensor, so only the last result stays",
            what=f"{kind} into one tensor several times",
            hints=["make the list with a comprehension: [torch.empty_like(t) for _ in range(world_size)]"],
            rule="definite",
        )
