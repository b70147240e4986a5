"""Tensors that are not dense CPU memory, as dense copies.

An operation that meets one is issued on copies; when it is complete, the results are copied back. Copies to and from
another device run on its current stream, so they are ordered with the program's own kernels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

Tensors = list[torch.Tensor]


def is_dense(t: torch.Tensor) -> bool:
    """Whether the elements fill their memory without gaps, in whatever order of dimensions."""
    order = sorted((d for d in range(t.dim()) if t.size(d) != 1), key=lambda d: (t.stride(d), t.size(d)))
    expected = 1
    for d in order:
        if t.stride(d) != expected:
            return False
        expected *= t.size(d)
    return True


def as_it_lies(t: torch.Tensor) -> torch.Tensor:
    """The memory of a dense tensor in the order in which it lies, as if it were contiguous."""
    return t.as_strided((t.numel(),), (1,), t.storage_offset()).view(t.shape)


def stage(
    inputs: Tensors, outputs: Tensors, in_place: bool, raw: bool
) -> tuple[Tensors, Tensors, Callable[[], None] | None]:
    """Dense CPU stand-ins for both lists, and what to call when the operation is complete.

    `in_place`: inputs are written to as well. `raw`: the backend looks at no strides of dense tensors.
    """
    back: list[tuple[torch.Tensor, torch.Tensor]] = []

    def stand_in(t: torch.Tensor, read: bool, written: bool) -> torch.Tensor:
        if t.layout is not torch.strided:
            raise RuntimeError(f"a tensor of layout {t.layout} where a dense one is expected")
        if t.device.type == "meta":
            raise RuntimeError("a meta tensor has no data: run one rank (`--rank R`) instead of all")
        if t.is_cpu and t.is_contiguous() and not t.is_conj():
            return t
        if t.is_cpu and raw and not t.is_conj() and is_dense(t):
            return as_it_lies(t)
        if read:
            copy = t.detach().to("cpu", memory_format=torch.contiguous_format, copy=True).resolve_conj()
        else:
            copy = torch.empty(t.shape, dtype=t.dtype)
        if written:
            back.append((t, copy))
        return copy

    with torch.no_grad():
        ins = [stand_in(t, True, in_place) for t in inputs]
        outs = [stand_in(t, False, True) for t in outputs]

    def finish() -> None:
        with torch.no_grad():
            for target, copy in back:
                # Below autograd: a real backend's writes are invisible to it as well.
                with torch._C._AutoDispatchBelowAutograd():
                    target.copy_(copy)

    return ins, outs, finish if back else None
