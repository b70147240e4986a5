"""What one-rank mode knows: which rank of which world, under which fill rule; and the groups it made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch.distributed import distributed_c10d as c10d

from allranks import _allranks, backend
from allranks.one_rank import slow
from allranks.one_rank.backend import OneRankBackend
from allranks.one_rank.patches import Patches
from allranks.one_rank.work import Finished


@dataclass
class Session:
    """One session a process. `world` is None until the first group of a plain program is made."""

    fill: str = "uniform"
    profile: str | None = None
    world: _allranks.FakeWorld | None = None
    patches: Patches = field(default_factory=Patches)
    record: int = 0
    at_first_group: list[Callable[[], None]] = field(default_factory=list)

    def make_world(self, rank: int, size: int) -> _allranks.FakeWorld:
        """The world of `rank`; the present one if it fits."""
        if self.world is None or (self.world.rank, self.world.size) != (rank, size):
            self.world = _allranks.FakeWorld(rank, size, fill=self.fill, work=Finished, slow=slow.run)
            self.keep(self.record)
        return self.world

    def keep(self, capacity: int) -> None:
        """Operations are kept in memory from now on; 0: no more."""
        self.record = capacity
        if capacity:
            backend._tell_code_paths()
        if self.world is not None:
            self.world.record(capacity)

    def creator(self, name: str) -> Callable[..., OneRankBackend]:
        """What torch calls to make the backend `name` of a group."""

        def create(opts: Any, options: Any = None) -> OneRankBackend:
            for prepare in self.at_first_group:
                prepare()
            self.at_first_group.clear()
            members = list(opts.global_ranks_in_group)
            if not members:  # The default group.
                members = list(range(opts.group_size))
                world = self.make_world(opts.group_rank, opts.group_size)
            else:
                world = self.world or self.make_world(opts.group_rank, opts.group_size)
            profile = self.profile or ("gloo" if name == "gloo" else None)
            title = "WORLD" if str(opts.group_id) in ("0", "") else str(opts.group_id)
            return OneRankBackend(world, name, title, opts.group_rank, members, opts.timeout, profile)

        return create


session = Session()


def backend_of(group: Any) -> OneRankBackend | None:
    """Our backend of a group (the default one for None), if it has one."""
    if group is None:
        group = c10d.GroupMember.WORLD
    if not isinstance(group, c10d.ProcessGroup):
        return None
    for device in group._device_types:
        backend = group._get_backend(device)
        if isinstance(backend, OneRankBackend):
            return backend
    return None


def is_active() -> bool:
    """The default group is ours."""
    return backend_of(None) is not None
