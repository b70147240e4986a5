"""Backends of torch that are ours while a run is on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

NAMES = ("gloo", "nccl", "allranks")
"""`fake` joins them in one-rank mode only: in all-ranks mode a script that asks for it gets what it asks for."""

_saved: dict[str, Any] = {}


def take_over(creator: Callable[[str], Callable[..., Any]], names: Iterable[str] = NAMES) -> None:
    """Makes `creator(name)` the maker of each named backend, until `give_back`."""
    give_back()
    custom = dist.ProcessGroup.BackendType.CUSTOM
    table = c10d.Backend
    _saved.update(
        plugins=dict(table._plugins),
        types=dict(table.backend_type_map),
        capability={k: list(v) for k, v in table.backend_capability.items()},
        names=list(table.backend_list),
    )
    for name in names:
        if name not in table.backend_list:
            table.backend_list.append(name)
            setattr(table, name.upper(), name)
        table._plugins[name.upper()] = table._BackendPlugin(creator(name), True)
        # Left as GLOO or NCCL, C++ takes the object for its own class and crashes.
        table.backend_type_map[name] = custom
        devices = table.backend_capability.setdefault(name, ["cpu", "cuda"])
        # Without a GPU, a script that names nccl means the tensors that it has.
        if name.startswith("nccl") and not torch.cuda.is_available() and "cpu" not in devices:
            devices.append("cpu")


def give_back() -> None:
    """Puts torch's own backends back; idempotent."""
    if not _saved:
        return
    table = c10d.Backend
    for target, source in (
        (table._plugins, _saved["plugins"]),
        (table.backend_type_map, _saved["types"]),
        (table.backend_capability, _saved["capability"]),
    ):
        target.clear()
        target.update(source)
    table.backend_list[:] = _saved["names"]
    _saved.clear()
