"""All-ranks mode for torch: its backends, stores and rendezvous are ours while a run is on."""

from __future__ import annotations

import os
import site
import sysconfig
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed import distributed_c10d as c10d

import allranks
from allranks import _allranks
from allranks.backend import ddp, groups, profiling, rendezvous, takeover, work
from allranks.backend.evidence import Evidence
from allranks.backend.group import RankBackend
from allranks.backend.session import Session

_NAMES = (*takeover.NAMES, "fake")


def install(runtime: Any) -> Session:
    """Takes over for the run of `runtime` (world_size, baton, world, plan); undone by `uninstall`."""
    profile = getattr(runtime.plan, "profile", None)
    session = Session(runtime.world, runtime.baton, profile)
    fake = c10d.Backend._plugins.get("FAKE")

    def creator(name: str) -> Callable[..., Any]:
        def create(opts: Any, options: Any = None) -> Any:
            members = list(opts.global_ranks_in_group) or list(range(opts.group_size))
            ours = opts.group_size <= runtime.world_size and _allranks.current_rank() is not None
            if name == "fake" and fake is not None:
                # A script that plays its own fake world, of another size or as another rank, keeps torch's.
                me = members[opts.group_rank] if opts.group_rank < len(members) else -1
                if not ours or me != _allranks.current_rank():
                    return fake.creator_fn(opts, options)
            title = str(opts.group_id)
            shown = groups.title(title, members)
            backend = RankBackend(session, name, f"{title}/{name}", shown, members, opts.timeout)
            return backend.describe(title, list(opts.global_ranks_in_group))

        return create

    _tell_code_paths()
    takeover.take_over(creator, (*_NAMES, *getattr(runtime.plan, "backends", ())))
    work.install()
    groups.install(session)
    rendezvous.install(runtime)
    session.evidence = Evidence(session)
    session.evidence.watch(runtime.registry)
    ddp.watch(runtime.registry)
    profiling.watch(runtime.registry)
    return session


def _tell_code_paths() -> None:
    """Frames of torch, of allranks and of the standard library are never shown as the user's."""
    hidden = [os.path.dirname(torch.__file__), os.path.dirname(allranks.__file__)]
    standard = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    packages = {sysconfig.get_path(name) for name in ("purelib", "platlib")} | set(site.getsitepackages())
    ends = [path.rstrip(os.sep) + os.sep for path in (*hidden, *standard, *packages) if path]
    split = len(hidden)
    _allranks.set_code_paths(ends[:split], ends[split : split + len(standard)], ends[split + len(standard) :])


def uninstall() -> None:
    """Puts everything of torch back."""
    rendezvous.uninstall()
    groups.uninstall()
    work.uninstall()
    takeover.give_back()
