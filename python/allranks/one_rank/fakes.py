"""What keeps a sharded model on the meta device, or under FakeTensorMode, from running in torch itself.

FSDP2 refuses parameters on the meta device, since training with them is a mistake; without peers it is a way to see
shapes and memory. A DeviceMesh computes with real tensors of ranks, which FakeTensorMode refuses.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from allranks.one_rank import private
from allranks.one_rank.on_import import when_imported
from allranks.one_rank.patches import Patches
from allranks.one_rank.session import is_active


def _real(original: Callable[..., Any]) -> Callable[..., Any]:
    """Runs outside all dispatch modes."""

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        if not is_active():
            return original(*args, **kwargs)
        with _disable_current_modes():
            return original(*args, **kwargs)

    return function


def _allow(original: Callable[..., None]) -> Callable[..., None]:
    def validate(self: Any) -> None:
        if not is_active():
            original(self)
        elif any(p.sharded_param.is_meta for p in self.fsdp_params):
            self.device = torch.device("meta")  # Where it makes its buffers.

    return validate


def _meta_is_cpu(original: Callable[..., Any]) -> Callable[..., Any]:
    """The module of streams and events for a device type: the meta device has none, and needs none."""

    def get_device_handle(device_type: str = "cuda") -> Any:
        return original("cpu" if device_type == "meta" and is_active() else device_type)

    return get_device_handle


def _unless_meta(original: Callable[..., None]) -> Callable[..., None]:
    def record(buffer: torch.Tensor, *args: Any) -> None:
        if not buffer.is_meta:
            original(buffer, *args)

    return record


def install(patches: Patches) -> None:
    """Takes effect when a program imports DeviceMesh or FSDP2."""

    def patch_mesh(module: Any) -> None:
        patches.wrap(module.DeviceMesh, "__init__", _real)
        patches.set(module.DeviceMesh, "mesh", property(_real(module.DeviceMesh.mesh.fget)))

    def patch_fsdp(module: Any) -> None:
        patches.wrap(module.FSDPParamGroup, "_validate_no_meta_params", _allow)
        for user in (module, sys.modules[private.FSDP_COLLECTIVES]):
            patches.wrap(user, "_get_device_handle", _meta_is_cpu)
        patches.wrap(sys.modules[private.FSDP_COLLECTIVES], "record_grad_output_stream", _unless_meta)

    when_imported(patches, {private.DEVICE_MESH: patch_mesh, private.FSDP_PARAM_GROUP: patch_fsdp})
