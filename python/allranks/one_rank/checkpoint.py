"""torch.distributed.checkpoint without peers.

Saving and loading are planned by a coordinator, rank 0, from the plans of all ranks. Here every rank stands in for the
coordinator, and the peers contribute nothing: a plan without items, no written files. So rank 17 of 512 writes its own
`__17_0.distcp` as it would among 512, and a `.metadata` that names only what it wrote; it loads that, and what a
real run wrote. The check that all chunks of a tensor are there is left out.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from allranks.one_rank import private
from allranks.one_rank.on_import import when_imported
from allranks.one_rank.patches import Patches
from allranks.one_rank.session import backend_of, is_active


def contribution_of_a_peer(mine: Any) -> Any:
    """What a peer adds to a gathered list: nothing where that is possible, else the same."""
    if dataclasses.is_dataclass(mine) and not isinstance(mine, type) and hasattr(mine, "items"):
        empty: dict[str, Any] = {"items": []}
        if isinstance(getattr(mine, "planner_data", None), dict):
            empty["planner_data"] = {}
        return dataclasses.replace(mine, **empty)
    return [] if isinstance(mine, list) else mine


def _gather(self: Any, object: Any) -> list[Any]:
    all_of_them = [contribution_of_a_peer(object)] * self.get_world_size()
    all_of_them[self.rank] = object
    return all_of_them


def _all_gather(self: Any, object: Any) -> list[Any]:
    return [object] * self.get_world_size()


def _scatter(self: Any, object_list: list[Any]) -> Any:
    return object_list[self.rank]


def _broadcast(self: Any, object: Any) -> Any:
    return object


def patch_wrapper(patches: Patches, module: Any) -> None:
    """The way in which ranks exchange plans and results. Groups of other backends keep torch's."""
    wrapper = module._DistWrapper
    for name, ours in (
        ("gather_object", _gather),
        ("all_gather_object", _all_gather),
        ("scatter_object", _scatter),
        ("broadcast_object", _broadcast),
    ):
        patches.wrap(wrapper, name, functools.partial(_alone_or, ours))

    def make_init(original: Callable[..., None]) -> Callable[..., None]:
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if _is_alone(self):
                self.is_coordinator = True

        return init

    patches.wrap(wrapper, "__init__", make_init)


def patch_planner(patches: Patches, module: Any) -> None:
    """The check of completeness."""

    def make_validate(original: Callable[..., Any]) -> Callable[..., Any]:
        def validate(*args: Any, **kwargs: Any) -> Any:
            return [] if is_active() else original(*args, **kwargs)  # A list of complaints.

        return validate

    patches.wrap(module, "_validate_global_plan", make_validate)


def install(patches: Patches) -> None:
    """Takes effect when a program imports torch.distributed.checkpoint."""
    when_imported(
        patches,
        {
            private.CHECKPOINT_UTILS: functools.partial(patch_wrapper, patches),
            private.CHECKPOINT_PLANNER: functools.partial(patch_planner, patches),
        },
    )


def _is_alone(wrapper: Any) -> bool:
    return wrapper.use_dist and backend_of(wrapper.group) is not None


def _alone_or(ours: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return ours(self, *args, **kwargs) if _is_alone(self) else original(self, *args, **kwargs)

    return method
