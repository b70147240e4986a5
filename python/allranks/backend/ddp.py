"""What DDP's logger says of the backend: C++ sees one of a kind that it does not know."""

from __future__ import annotations

import functools
import os
from typing import Any

import torch.distributed as dist

_DDP = "torch.nn.parallel.distributed"
#: What C++ adds for each backend: the name in the data, the variable that it is read from.
_VARIABLES = {
    "gloo": ("GLOO_SOCKET_IFNAME", "GLOO_DEVICE_TRANSPORT"),
    "nccl": (
        "NCCL_SOCKET_IFNAME",
        "TORCH_NCCL_BLOCKING_WAIT",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "NCCL_DEBUG",
        "NCCL_NTHREADS",
        "NCCL_IB_TIMEOUT",
    ),
}
#: Threads of a gloo group, which C++ asks the group for.
_GLOO_THREADS = 2


def watch(registry: Any) -> None:
    """From the import of DDP on."""
    registry.on_import(
        _DDP,
        lambda module: registry.patches.wrap(module.DistributedDataParallel, "_get_ddp_logging_data", _telling),
    )


def _telling(original: Any) -> Any:
    @functools.wraps(original)
    def get_ddp_logging_data(self: Any) -> Any:
        data = original(self)
        if data.get("backend_name") != "custom":
            return data
        name = dist.get_backend(self.process_group)
        data["backend_name"] = name
        for variable in _VARIABLES.get(name, ()):
            data[variable.removeprefix("TORCH_").lower()] = os.environ.get(variable, "N/A")
        if name == "gloo":
            data["gloo_num_threads"] = _GLOO_THREADS
        return data

    return get_ddp_logging_data
