"""Making of groups: every rank must make the same ones in the same order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from allranks import _allranks
from allranks.backend.group import RankBackend
from allranks.backend.session import Session

_saved: list[tuple[Any, str, Callable[..., Any]]] = []
"""What was replaced, and where."""


def title(group_name: str, members: list[int]) -> str:
    """How reports call a group: the default one is WORLD, others go by their ranks too."""
    if group_name in ("0", "default_pg", ""):
        return "WORLD"
    shown = ",".join(map(str, members[:8])) + (",..." if len(members) > 8 else "")
    return f"{group_name} [{shown}]"


def _backends(group: dist.ProcessGroup) -> list[RankBackend]:
    """Our backends of a group, each once."""
    found: list[RankBackend] = []
    for device in group._device_types:
        backend = group._get_backend(device)
        if isinstance(backend, RankBackend) and backend not in found:
            found.append(backend)
    return found


def _world_backend() -> RankBackend | None:
    """Our backend of the default group, if it has one."""
    group = dist.group.WORLD
    return next(iter(_backends(group)), None) if group is not None else None


def install(session: Session) -> None:
    """Watches `new_group` and the use of groups by outsiders; idempotent."""
    if _saved:
        return
    make, warn, wrap = c10d._new_group_with_tag, c10d._warn_not_in_group, c10d._create_process_group_wrapper
    split, name_of = dist.ProcessGroup.split_group, dist.ProcessGroup.name

    def new_group_with_tag(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
        local = kwargs.get("use_local_synchronization", args[4] if len(args) > 4 else False)
        backend = _world_backend() if _allranks.current_rank() is not None and not local else None
        if backend is not None:
            members = list(range(backend.size())) if ranks is None else sorted(int(r) for r in ranks)
            if all(0 <= member < backend.size() for member in members):  # torch refuses others.
                backend.note_new_group(members)
        return make(ranks, *args, **kwargs)

    def warn_not_in_group(name: str) -> None:
        if _allranks.current_rank() is not None:
            session.find(
                "not-a-member",
                "warning",
                f"{name} on a group that the rank is not a member of: nothing happens there",
                what=f"{name} on a group of others",
                hints=["call it only on members, or test for GroupMember.NON_GROUP_MEMBER"],
                rule="definite",
            )
        warn(name)

    def split_group(self: dist.ProcessGroup, ranks: list[int], *args: Any, **kwargs: Any) -> Any:
        ours = _backends(self)
        if ours and self.rank() not in ranks:  # torch does not expect None from a Python backend.
            for backend in ours:
                backend.skip_split()
            return None
        return split(self, ranks, *args, **kwargs)

    def name(self: dist.ProcessGroup) -> str:
        ours = _backends(self)
        return ours[0].getBackendName() if ours else name_of(self)

    def debug_wrapper(wrapped_pg: Any, *args: Any, **kwargs: Any) -> Any:
        # TORCH_DISTRIBUTED_DEBUG=DETAIL compares what ranks issue, over sockets; here that is always done, and without.
        return wrapped_pg if isinstance(wrapped_pg, RankBackend) else wrap(wrapped_pg, *args, **kwargs)

    for target, attribute, replacement in (
        (c10d, "_create_process_group_wrapper", debug_wrapper),
        (c10d, "_new_group_with_tag", new_group_with_tag),
        (c10d, "_warn_not_in_group", warn_not_in_group),
        (dist.ProcessGroup, "split_group", split_group),
        (dist.ProcessGroup, "name", name),
    ):
        _saved.append((target, attribute, vars(target)[attribute]))  # Not bound: C++ methods would stay so.
        setattr(target, attribute, replacement)


def uninstall() -> None:
    """Puts torch's functions back."""
    for target, attribute, original in _saved:
        setattr(target, attribute, original)
    _saved.clear()
