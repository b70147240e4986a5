"""c10d operations on meta and fake tensors: kernels that torch lacks, and a future that DDP's hook can use.

Under `FakeTensorMode`, and on the meta device, torch runs an operation's Meta kernel and never calls the backend. It
has none for the coalesced forms and for gather_into_tensor. Shapes are the caller's own: nothing to compute.
"""

from __future__ import annotations

from typing import Any

import torch

from allranks.one_rank import private
from allranks.one_rank.work import Finished

_library: torch.library.Library | None = None


def _first(result: Any, *rest: Any) -> Any:
    return _boxed(list(result))


def _one(output: torch.Tensor, *rest: Any) -> Any:
    return output, _boxed([output])


def _lists(outputs: Any, *rest: Any) -> Any:
    return _boxed([t for inner in outputs for t in inner])


def _all_reduce(tensors: Any, *rest: Any) -> Any:
    return list(tensors), _boxed(list(tensors))


_works: list[Finished] = []


def _boxed(tensors: list[torch.Tensor]) -> Any:
    work = Finished(tensors)
    _works.append(work)
    del _works[:-64]
    return work.boxed()


def install() -> None:
    """Once a process: a registered kernel cannot depend on who is on; all that it does is right for anybody."""
    global _library
    if _library is not None:
        return
    _library = torch.library.Library("c10d", "IMPL")
    for name, kernel in (
        ("allreduce_coalesced_", _first),
        ("allgather_into_tensor_coalesced_", _first),
        ("reduce_scatter_tensor_coalesced_", _first),
        ("allgather_coalesced_", _lists),
        ("gather_into_tensor_", _one),
    ):
        if hasattr(torch.ops.c10d, name) and not private.has_kernel(f"c10d::{name}", "Meta"):
            _library.impl(name, kernel, "Meta")
    # torch's own kernel gives a future of None, which DDP's default hook refuses.
    _library.impl("allreduce_", _all_reduce, "Meta", allow_override=True)
