"""Rendezvous with nobody: the store is one without peers (see `allranks.backend.store` for what it answers)."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Iterator
from types import FrameType, SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlparse

import torch.distributed as dist
from torch._C._distributed_c10d import FakeStore

from allranks.backend import rendezvous as shared
from allranks.backend import store as stores
from allranks.one_rank import private
from allranks.one_rank.patches import Patches

#: torch keeps the C++ half of a store only, which cannot call a Python half that is gone.
_stores: list[stores.RunStore] = []


def _held(store: stores.RunStore) -> stores.RunStore:
    _stores.append(store)
    return store


def install(patches: Patches, rank: int, world_size: int) -> None:
    """For a run whose rank and world size are given from outside: env://, tcp://, file:// and every store are alone."""
    hub = shared.install(SimpleNamespace(rank=rank, world_size=world_size))
    original = dist.init_process_group
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> None:
        given = signature.bind_partial(*args, **kwargs).arguments
        given.update(given.pop("kwargs", {}))
        # For "fake", torch asks no rendezvous, and takes a store that forgets.
        fake = given.get("backend") == "fake"
        if isinstance(given.get("store"), FakeStore) or (fake and given.get("store") is None):
            given["store"] = _held(stores.RunHashStore(hub.hash()))
        if fake and given.get("rank", -1) < 0:
            given.update(rank=rank, world_size=world_size)
        original(**given)

    for module in private.public_modules():
        patches.set(module, "init_process_group", init_process_group)


def uninstall() -> None:
    """Undoes `install`, but for what its patches undo."""
    shared.uninstall()
    _stores.clear()


def install_plain(patches: Patches) -> None:
    """For `init_process_group("allranks", rank=..., world_size=...)` in a plain program: only that one is ours."""
    handlers = private.rendezvous_handlers()
    original = handlers["env"]

    def handler(url: str, **kwargs: Any) -> Iterator[tuple[dist.Store, int, int]]:
        if not _asked_for_allranks(sys._getframe(1)):
            yield from original(url, **kwargs)
            return
        query = parse_qs(urlparse(url).query)
        rank, world_size = _number(query, "rank", "RANK"), _number(query, "world_size", "WORLD_SIZE")
        if not 0 <= rank < world_size:
            raise ValueError(f'init_process_group("allranks"): rank {rank} is not in a world of {world_size}')
        yield _held(stores.RunHashStore(stores.make_hub(world_size, rank).hash())), rank, world_size

    patches.set_item(handlers, "env", handler)


def _number(query: dict[str, list[str]], key: str, variable: str) -> int:
    value = query[key][0] if key in query else os.environ.get(variable)
    if value is None:
        raise ValueError(f'init_process_group("allranks") needs {key}=, or the environment variable {variable}')
    return int(value)


def _asked_for_allranks(frame: FrameType | None) -> bool:
    """The handler is not told which backend asks; its caller's frame is."""
    while frame is not None:
        if frame.f_code.co_name == "init_process_group" and "backend" in frame.f_locals:
            return str(frame.f_locals["backend"]) == "allranks"
        frame = frame.f_back
    return False
