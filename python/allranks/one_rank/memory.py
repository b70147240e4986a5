"""`torch.empty` and its kin give zeros: memory that nobody wrote must not leave an operation that leaves it as it was.

A broadcast into `torch.empty(n)` on a rank that is not the root would hand out whatever was there, and so would every
rule by which a tensor stays as it is. Tensors on the meta device, fake tensors and subclasses are left alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from allranks import _allranks
from allranks.one_rank import private
from allranks.one_rank.patches import Patches


def _zeroed(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(original)
    def factory(*args: Any, **kwargs: Any) -> torch.Tensor:
        tensor = original(*args, **kwargs)
        if type(tensor) is not torch.Tensor or tensor.is_meta or torch.compiler.is_compiling():
            return tensor
        if tensor.layout is torch.strided and not _allranks.clear_memory(tensor):
            with torch.no_grad():
                tensor.zero_()
        return tensor

    return factory


def install(patches: Patches) -> None:
    """Replaces the factories."""
    private.settle_device_constructors()
    for name in ("empty", "empty_like", "empty_strided"):
        patches.wrap(torch, name, _zeroed)
    patches.wrap(torch.Tensor, "new_empty", _zeroed)
