"""`torch.empty` and its kin give zeros: memory that nobody wrote must not leave an operation that leaves it as it was.

A broadcast into `torch.empty(n)` on a rank that is not the root would hand out whatever was there, and so would every
rule by which a tensor stays as it is. Tensors on the meta device, fake tensors and subclasses are left alone; so are
FSDP2's buffers for all_gather and reduce_scatter, which it writes as a whole before anybody reads them.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

from allranks import _allranks
from allranks.one_rank import private
from allranks.one_rank.on_import import when_imported
from allranks.one_rank.patches import Patches

#: Not 0: whoever allocates writes every element.
_trusted = 0


def trusting(original: Callable[..., Any]) -> Callable[..., Any]:
    """For functions whose allocations are written as a whole."""

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        global _trusted
        _trusted += 1
        try:
            return original(*args, **kwargs)
        finally:
            _trusted -= 1

    return function


def _zeroed(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(original)
    def factory(*args: Any, **kwargs: Any) -> torch.Tensor:
        tensor = original(*args, **kwargs)
        if _trusted or type(tensor) is not torch.Tensor or tensor.is_meta or torch.compiler.is_compiling():
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

    def trust_fsdp(param_group: Any) -> None:
        patches.wrap(sys.modules[private.FSDP_COLLECTIVES].DefaultAllocMixin, "allocate", trusting)
        patches.wrap(param_group.FSDPParam, "init_all_gather_outputs", trusting)

    when_imported(patches, {private.FSDP_PARAM_GROUP: trust_fsdp})
