"""One rank of a big world in one process, without peers.

`install` is for the launcher (`allranks run -n 4096 --rank 17 train.py`), before the script; `register_plain` makes
`init_process_group("allranks", rank=3, world_size=64)` work in a plain program.
"""

from __future__ import annotations

from typing import Any

from torch.distributed import distributed_c10d as c10d

from allranks.backend import takeover
from allranks.one_rank import checkpoint, dtensor, fakes, guards, memory, meta, objects, pipeline, rendezvous, zero
from allranks.one_rank import work as works
from allranks.one_rank.pipeline import pipeline_input
from allranks.one_rank.session import is_active, session

NAMES = (*takeover.NAMES, "fake")

__all__ = ["install", "is_active", "pipeline_input", "record", "records", "register_plain", "summary", "uninstall"]


def _prepare() -> None:
    """What is needed once there is a group. Imports of torch's parts that few programs use wait until here."""
    works.install(session.patches)
    guards.install(session.patches)
    objects.install(session.patches)
    memory.install(session.patches)
    checkpoint.install(session.patches)
    pipeline.install(session.patches)
    zero.install(session.patches)
    fakes.install(session.patches)
    dtensor.install(session.patches)
    meta.install()


def install(world_size: int, rank: int, fill: str = "uniform", profile: str | None = None) -> None:
    """Every process group from now on is that of `rank` in a world of `world_size` whose other ranks do not exist.

    `fill` is the rule for what peers hold: "uniform", "zeros" or "nan". `profile` ("gloo", "nccl") says whose refusals
    hold; None: gloo's where the script names gloo.
    """
    _reset()
    session.fill, session.profile = fill, profile
    session.make_world(rank, world_size)
    takeover.take_over(session.creator, NAMES)
    rendezvous.install(session.patches, rank, world_size)
    _prepare()


def register_plain() -> None:
    """Makes the backend name "allranks" known to torch; nothing else changes until a group is made."""
    if "ALLRANKS" in c10d.Backend._plugins:
        return
    c10d.Backend.register_backend("allranks", session.creator("allranks"), extended_api=True, devices=["cpu", "cuda"])
    _wait_for_plain()


def _wait_for_plain() -> None:
    rendezvous.install_plain(session.patches)
    session.at_first_group.append(_prepare)


def uninstall() -> None:
    """Puts torch back as it was before `install`; the backend name "allranks" stays known if it was."""
    _reset()
    if "ALLRANKS" in c10d.Backend._plugins:
        _wait_for_plain()


def _reset() -> None:
    session.patches.undo()
    session.at_first_group.clear()
    takeover.give_back()
    rendezvous.uninstall()
    pipeline.forget()
    session.world, session.fill, session.profile, session.record = None, "uniform", None, 0


def summary() -> tuple[list[tuple[str, int]], list[tuple[str, int, int]]]:
    """Operations by kind, and (group, size, bytes that this rank would send)."""
    return ([], []) if session.world is None else session.world.summary()


def record(capacity: int) -> None:
    """Keeps the last `capacity` operations in memory; 0 stops."""
    session.keep(capacity)


def records() -> list[dict[str, Any]]:
    """The operations kept, oldest first."""
    return [] if session.world is None else session.world.records()
