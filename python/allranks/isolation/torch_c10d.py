"""c10d's tables: every rank has its own world, and its helper threads see the same groups."""

from __future__ import annotations

import functools
import threading
from typing import Any

from allranks._allranks import current_rank
from allranks.isolation import torch_names as names
from allranks.isolation.registry import Registry


def install(registry: Registry) -> None:
    """Waits for torch.distributed: `import torch` alone does not need it."""
    registry.on_import(names.C10D, lambda c10d: _private(registry, c10d))


def _private(registry: Registry, c10d: Any) -> None:
    module = vars(c10d)
    registry.entry(module, names.WORLD, fresh=lambda world: type(world)())
    registry.entries(module, names.C10D_TABLES, fresh=lambda table: type(table)())
    registry.entries(module, names.C10D_VALUES)
    import torch

    native: Any = torch._C._distributed_c10d
    native._set_thread_isolation_mode(True)
    registry.at_close.append(lambda: native._set_thread_isolation_mode(False))
    _Groups(registry, c10d)
    # Set by `set_debug_level` and read from the environment at init: process-wide in C++.
    for setter in ("set_debug_level", "set_debug_level_from_env"):
        read, write = native.get_debug_level, native.set_debug_level
        for owner in (native, c10d):
            registry.on_call(owner, setter, functools.partial(registry.call, read, write, key="c10d debug level"))


class _Groups:
    """C++ finds groups by name in a table of the calling thread; each thread of a rank gets what the rank has."""

    def __init__(self, registry: Registry, c10d: Any) -> None:
        self._of_rank: list[dict[str, Any]] = [{} for _ in range(registry.world_size)]
        self._changes = [0] * registry.world_size
        self._seen = threading.local()
        self._register = getattr(c10d, names.REGISTER_GROUP)
        self._unregister = getattr(c10d, names.UNREGISTER_GROUP)
        registry.patches.set(c10d, names.REGISTER_GROUP, self._on_register)
        registry.patches.set(c10d, names.UNREGISTER_GROUP, self._on_unregister)
        registry.patches.wrap(c10d, names.UNREGISTER_ALL, self._on_unregister_all)
        registry.patches.wrap(c10d, "_get_default_group", self._catching_up)
        registry.thread_state.append((lambda: None, lambda _: self._catch_up()))

    def _on_register(self, name: str, group: Any) -> None:
        rank = current_rank()
        self._register(name, group)
        if rank is not None:
            self._of_rank[rank][name] = group
            self._note(rank, name, group)

    def _on_unregister(self, name: str) -> None:
        rank = current_rank()
        self._unregister(name)
        if rank is not None:
            self._of_rank[rank].pop(name, None)
            self._note(rank, name, None)

    def _on_unregister_all(self, original: Any) -> Any:
        @functools.wraps(original)
        def unregister_all() -> None:
            rank = current_rank()
            original()
            if rank is not None:
                self._of_rank[rank].clear()
                self._changes[rank] += 1
                self._seen.groups, self._seen.change = {}, self._changes[rank]

        return unregister_all

    def _note(self, rank: int, name: str, group: Any) -> None:
        """The calling thread knows of this change already."""
        known = self._known()
        up_to_date = self._seen.change == self._changes[rank]
        self._changes[rank] += 1
        if up_to_date:
            self._seen.change = self._changes[rank]
        if group is None:
            known.pop(name, None)
        else:
            known[name] = group

    def _known(self) -> dict[str, Any]:
        if not hasattr(self._seen, "groups"):
            self._seen.groups, self._seen.change = {}, 0
        groups: dict[str, Any] = self._seen.groups
        return groups

    def _catch_up(self) -> None:
        """Another thread of this rank made or destroyed groups meanwhile."""
        rank = current_rank()
        if rank is None:
            return
        known = self._known()
        if self._seen.change == self._changes[rank]:
            return
        wanted = self._of_rank[rank]
        for name in [name for name in known if known[name] is not wanted.get(name)]:
            self._unregister(name)
            del known[name]
        for name, group in wanted.items():
            if name not in known:
                self._register(name, group)
                known[name] = group
        self._seen.change = self._changes[rank]

    def _catching_up(self, original: Any) -> Any:
        @functools.wraps(original)
        def get_default_group() -> Any:
            self._catch_up()
            return original()

        return get_default_group
