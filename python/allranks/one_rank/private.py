"""Every private name of torch that one-rank mode touches, what it is, and why."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.parallel.distributed
import torch.utils._device
from torch.distributed import distributed_c10d as c10d

#: Wraps a backend when TORCH_DISTRIBUTED_DEBUG=DETAIL: builds a real gloo mesh, which would wait for peers.
DEBUG_WRAPPER = (c10d, "_create_process_group_wrapper")
#: DDP compares parameter shapes with rank 0's; bound by name in both modules.
VERIFY_SHAPES = tuple(
    (module, "_verify_param_shape_across_processes")
    for module in (torch.distributed.utils, torch.nn.parallel.distributed)
)

#: What DDP logged about itself.
DDP_LOGGING = (torch.nn.parallel.DistributedDataParallel, "_get_ddp_logging_data")


def public_modules() -> tuple[Any, ...]:
    """Modules under whose names programs call c10d's functions."""
    return (dist, c10d)


def rendezvous_handlers() -> dict[str, Callable[..., Any]]:
    """Scheme -> generator. (`import torch.distributed.rendezvous` gives the function of that name.)"""
    handlers: dict[str, Callable[..., Any]] = sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers  # type: ignore[attr-defined]
    return handlers


def has_kernel(operation: str, key: str) -> bool:
    """Whether an operation has a kernel for a dispatch key."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(operation, key)


def settle_device_constructors() -> None:
    """torch keeps a set of factories that obey `with torch.device(...)`, made at first use: before we replace any."""
    torch.utils._device._device_constructors()


def group_rank(group: Any, global_rank: int | None, rank_in_group: int | None) -> int:
    """The rank in `group` from either way to give it; checks as torch does."""
    rank: int = c10d._canonicalize_group_rank(group, global_rank, rank_in_group, return_global=False)
    return rank


#: `_DistWrapper`: DCP's wrapper of object collectives.
CHECKPOINT_UTILS = "torch.distributed.checkpoint.utils"
#: `_validate_global_plan`: demands that the chunks of all ranks cover each tensor.
CHECKPOINT_PLANNER = "torch.distributed.checkpoint.default_planner"
#: `PipelineStage._recv_meta`, `_send_meta`: metadata inference exchanges objects with the neighbours
#: (`_StageForwardMeta`, `_StageBackwardMeta`), made by `extract_tensor_metas` and `_derive_grad_metas`.
PIPELINE_STAGE = "torch.distributed.pipelining.stage"
#: `ZeroRedundancyOptimizer.consolidate_state_dict`: sends optimizer states by a pickle of its own.
ZERO_OPTIMIZER = "torch.distributed.optim.zero_redundancy_optimizer"
#: `_PipelineSchedule._initialize_pp_stages`: knows the arguments and the target of a step.
PIPELINE_SCHEDULES = "torch.distributed.pipelining.schedules"
#: `DeviceMesh`: its constructor and `mesh` compute with tensors of ranks.
DEVICE_MESH = "torch.distributed.device_mesh"
#: `FSDPParamGroup._validate_no_meta_params`: refuses the meta device at the first forward. `FSDPParam` allocates there,
#: and so does `DefaultAllocMixin` of the module below.
FSDP_PARAM_GROUP = "torch.distributed.fsdp._fully_shard._fsdp_param_group"
#: `_get_device_handle`, bound by name there too; `record_grad_output_stream` (2.15) wants a stream with an id.
FSDP_COLLECTIVES = "torch.distributed.fsdp._fully_shard._fsdp_collectives"
#: `mesh_scatter`: deals a tensor out over a dimension of a mesh; bound by name in the second module.
TENSOR_COLLECTIVES = "torch.distributed.tensor._collective_utils"
TENSOR_PLACEMENTS = "torch.distributed.tensor.placement_types"
