"""Every private name of torch that one-rank mode touches, with what it is for and where versions differ."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d


def rendezvous_handlers() -> dict[str, Callable[..., Any]]:
    """Scheme -> generator. (`import torch.distributed.rendezvous` gives the function of that name.)"""
    handlers: dict[str, Callable[..., Any]] = sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers  # type: ignore[attr-defined]
    return handlers


#: Barrier over a store when TORCH_DIST_INIT_BARRIER=1: would wait for peers.
STORE_BARRIER = (c10d, "_store_based_barrier")
#: Wraps a backend when TORCH_DISTRIBUTED_DEBUG=DETAIL, and builds a real gloo mesh for it.
DEBUG_WRAPPER = (c10d, "_create_process_group_wrapper")
#: Compares parameter shapes with rank 0's; imported by name into several modules.
VERIFY_SHAPES = "_verify_param_shape_across_processes"


def modules_with(name: str, *candidates: str) -> list[Any]:
    """Those of the modules that are imported and have such a name."""
    found = [sys.modules.get(c) for c in candidates]
    return [m for m in found if m is not None and hasattr(m, name)]


def default_backend_of(group: Any) -> Any:
    """The backend object behind a group."""
    return group._get_backend(next(iter(group._device_types)))


def dist_wrapper() -> Any:
    """DCP's wrapper of object collectives."""
    from torch.distributed.checkpoint import utils

    return utils._DistWrapper


def checkpoint_planner() -> Any:
    """The module that validates a global plan (`_validate_global_plan`)."""
    from torch.distributed.checkpoint import default_planner

    return default_planner


def pipeline_stage() -> Any:
    """The module of `PipelineStage`, whose shape inference exchanges metadata objects with its neighbours."""
    from torch.distributed.pipelining import stage

    return stage


def object_functions() -> tuple[Any, ...]:
    """Modules under whose names programs call object collectives."""
    return (dist, c10d)
