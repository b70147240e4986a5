"""ZeroRedundancyOptimizer without peers: a consolidated state holds this rank's part, and nothing of the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from allranks.one_rank import private
from allranks.one_rank.on_import import when_imported
from allranks.one_rank.patches import Patches
from allranks.one_rank.session import backend_of


def _empty_state(groups: list[dict[str, Any]]) -> dict[str, Any]:
    """A peer's state dict: its parameters by number, and no state."""
    numbered, first = [], 0
    for group in groups:
        count = len(group["params"])
        numbered.append({**group, "params": list(range(first, first + count))})
        first += count
    return {"state": {}, "param_groups": numbered}


def _consolidate(original: Callable[..., None]) -> Callable[..., None]:
    def consolidate_state_dict(self: Any, to: int = 0) -> None:
        backend = backend_of(self.process_group)
        if backend is None:
            original(self, to)
            return
        self._check_overlap_initialized()
        self._sync_param_groups(self.param_groups, self.optim.param_groups)
        for _ in range(self.world_size):
            backend.note("broadcast", "int64", 1)
            backend.note("broadcast", "uint8", 0)
        states = [_empty_state(groups) for groups in self._partition_parameters()] if self.rank == to else []
        if states:
            states[self.rank] = self.optim.state_dict()
        self._all_state_dicts = states

    return consolidate_state_dict


def install(patches: Patches) -> None:
    """Takes effect when a program imports torch.distributed.optim."""

    def patch(module: Any) -> None:
        patches.wrap(module.ZeroRedundancyOptimizer, "consolidate_state_dict", _consolidate)

    when_imported(patches, {private.ZERO_OPTIMIZER: patch})
