"""torch's stores, kept inside this process.

While a run is on, `TCPStore(...)`, `HashStore()` and `FileStore(...)` called by a rank give a `RunStore`. The classes
of torch stay where they are, so that every name a module has bound keeps its meaning: only their `__new__` is replaced.
On any thread that belongs to no rank, in forked children, and after the run, the real classes are made.

What a store answers in one-rank mode is the rule of `allranks_store::Alone` (crates/store/src/alone.rs):

- Peers do what this rank does. A key that this rank did not set has the value of a key that it did set, if the two
  differ only by a rank number: `k3` has the value of `k17` on rank 17, `3->17` that of `17->3`.
- `add(key, n)` counts n for every rank of the world; `barrier` and torch's own store barriers are passed at once.
- Any other missing key raises `DistStoreError`: no peer exists that could set it. Nothing blocks.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import FrameType
from typing import Any

from torch._C import _distributed_c10d as c10d

from allranks import _allranks
from allranks.backend.deadlines import is_chosen

Data = str | bytes
Timeout = timedelta | float

PROBE = "\0allranks-probe"
"""A key that begins with it asks for its full form under all prefixes: see `allranks.backend.prefix`."""

probed: list[str] = []

_hub: _allranks.StoreHub | None = None
_alone = False


def hub() -> _allranks.StoreHub | None:
    """The stores of the run that is on: `waits()` and `waiting()` say who waits for which key."""
    return _hub


def active() -> _allranks.StoreHub | None:
    """The hub, if the calling thread belongs to a rank of the run."""
    if _hub is not None and (_alone or _allranks.current_rank() is not None):
        return _hub
    return None


class RunStore(c10d.Store):
    """A store of a run: each method is one call to Rust.

    pybind finds overrides only if they are Python functions, and looks for `getNumKeys` and `deleteKey` under their C++
    names.
    """

    stands_for: type[c10d.Store] = c10d.Store

    def __init__(self, core: _allranks.StoreCore) -> None:
        super().__init__()
        self._core = core

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        # `isinstance(store, TCPStore)` looks here too.
        return self.stands_for

    def __repr__(self) -> str:
        return f"<allranks {self._core.name}>"

    def set(self, key: Data, value: Data) -> None:
        self._core.set(key, value)

    def get(self, key: Data) -> bytes:
        return self._core.get(key)

    def add(self, key: Data, value: int) -> int:
        return self._core.add(key, value)

    def check(self, keys: Sequence[Data]) -> bool:
        return self._core.check(keys)

    def wait(self, keys: Sequence[Data], timeout: Timeout | None = None) -> None:
        self._core.wait(keys, timeout)

    def compare_set(self, key: Data, expected_value: Data, desired_value: Data) -> bytes:
        return self._core.compare_set(key, expected_value, desired_value)

    def append(self, key: Data, value: Data) -> None:
        self._core.append(key, value)

    def multi_get(self, keys: Sequence[Data]) -> list[bytes]:
        return self._core.multi_get(keys)

    def multi_set(self, keys: Sequence[Data], values: Sequence[Data]) -> None:
        self._core.multi_set(keys, values)

    def delete_key(self, key: Data) -> bool:
        return self._core.delete_key(key)

    def num_keys(self) -> int:
        return self._core.num_keys()

    def list_keys(self) -> list[str]:
        return self._core.list_keys()

    def has_extended_api(self) -> bool:
        return self._core.has_extended_api()

    def queue_push(self, key: Data, value: Data) -> None:
        self._core.queue_push(key, value)

    def queue_pop(self, key: Data, block: bool = True) -> bytes:
        return self._core.queue_pop(key, block)

    def queue_len(self, key: Data) -> int:
        return self._core.queue_len(key)

    def barrier(self, key: Data, world_size: int, timeout: Timeout | None = None) -> None:
        self._core.barrier(key, world_size, timeout)

    def set_timeout(self, timeout: Timeout) -> None:
        self.choose_timeout(timeout, sys._getframe(1))

    def choose_timeout(self, timeout: Timeout, caller: FrameType) -> None:
        """`set_timeout` called from `caller`."""
        # init_process_group hands the time-out of the process group on, chosen or not.
        by_torch = str(caller.f_globals.get("__name__")).startswith(("torch.distributed.", "allranks."))
        explicit = not by_torch or is_chosen(timeout)
        self._core.set_timeout(timeout, explicit)
        super().set_timeout(timeout)  # type: ignore[arg-type]

    def clone(self) -> RunStore:
        return self._like_me(type(self)(self._core.clone()))

    def _like_me(self, other: RunStore) -> RunStore:
        if not isinstance(other, c10d.FileStore):  # torch's starts with the default again
            c10d.Store.set_timeout(other, self.timeout)  # type: ignore[attr-defined]
        _kept.append(other)
        return other

    def core_of(self) -> _allranks.StoreCore:
        """The Rust half."""
        return self._core

    def getNumKeys(self) -> int:
        return self._core.num_keys()

    def deleteKey(self, key: str) -> bool:
        if PROBE in key:
            probed.append(key)
            return False
        return self._core.delete_key(key)


class RunTCPStore(RunStore):
    """Stands for `TCPStore`: one place a host and port."""

    stands_for = c10d.TCPStore
    libuvBackend = True

    def __init__(self, core: _allranks.StoreCore, host: str) -> None:
        super().__init__(core)
        self.host = host

    @property
    def port(self) -> int:
        return self._core.port

    def clone(self) -> RunStore:
        return self._like_me(type(self)(self._core.clone(), self.host))


class RunHashStore(RunStore):
    """Stands for `HashStore`: each a place of its own."""

    stands_for = c10d.HashStore


class RunFileStore(RunStore):
    """Stands for `FileStore`: one place a path. The file exists as long as torch's would; its contents do not."""

    stands_for = c10d.FileStore

    def __init__(self, core: _allranks.StoreCore, path: str) -> None:
        super().__init__(core)
        self.path = path

    def clone(self) -> RunStore:
        return self._like_me(type(self)(self._core.clone(), self.path))


#: C++ may hold a store after Python let go of it; torch cannot call a Python store then. Until the end of the run.
_kept: list[RunStore] = []
#: The same for stores that belong to no run.
_kept_for_ever: list[RunStore] = []


def default_store(core: _allranks.StoreCore, host: str | None, path: str | None = None) -> RunStore:
    """The store that a rendezvous gives: a `TCPStore` of `host`, or a `FileStore` of `path`."""
    store: RunStore = RunTCPStore(core, host) if host is not None else RunFileStore(core, path or "")
    _kept.append(store)
    return store


def alone_store(world_size: int, rank: int) -> RunStore:
    """A store without peers for a program that no run surrounds."""
    store = RunHashStore(make_hub(world_size, rank).hash())
    _kept_for_ever.append(store)
    return store


def _tcp(
    run: _allranks.StoreHub,
    host_name: str,
    port: int,
    world_size: int | None = None,
    is_master: bool = False,
    timeout: timedelta | None = None,
    wait_for_workers: bool = True,
    multi_tenant: bool = False,
    master_listen_fd: int | None = None,
    use_libuv: bool = True,
) -> RunStore:
    del master_listen_fd, use_libuv
    # The agent of an elastic launch serves its own address already; torch forgives a second server there.
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and os.environ.get("MASTER_PORT") == str(port)
    core = run.tcp(
        host_name,
        port,
        world_size=world_size,
        is_master=is_master,
        timeout=timeout,
        wait_for_workers=wait_for_workers,
        multi_tenant=multi_tenant or agent,
    )
    store = RunTCPStore(core, host_name)
    c10d.Store.set_timeout(store, timeout if timeout is not None else timedelta(seconds=300))
    return store


def _hash(run: _allranks.StoreHub) -> RunStore:
    return RunHashStore(run.hash())


def _file(run: _allranks.StoreHub, file_name: str, world_size: int = -1) -> RunStore:
    return RunFileStore(run.file(file_name, world_size), file_name)


def _replace_new(real: Any, ours: Callable[..., RunStore]) -> None:
    inherited = real.__new__

    def new(cls: Any, /, *args: Any, **kwargs: Any) -> Any:
        run = active() if cls is real else None
        return inherited(cls) if run is None else ours(run, *args, **kwargs)

    real.__new__ = new


_replaced: list[Any] = []
_watches_forks: list[bool] = []


def _forget() -> None:
    """A forked child has no part in the run. (Its pid would not tell: a rank's is not the process's.)"""
    global _hub
    _hub = None


def install(run: _allranks.StoreHub) -> None:
    """Stores that ranks make are of `run` from now on."""
    global _hub, _alone
    if not _watches_forks and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forget)
        _watches_forks.append(True)
    _hub, _alone = run, run.is_alone
    if not _replaced:
        for real, ours in ((c10d.TCPStore, _tcp), (c10d.HashStore, _hash), (c10d.FileStore, _file)):
            _replace_new(real, ours)
            _replaced.append(real)


def uninstall() -> None:
    """The real classes are made again, and the stores of the run are let go."""
    global _hub
    _hub = None
    for real in _replaced:
        del real.__new__
    _replaced.clear()
    _kept.clear()


def make_hub(world_size: int, alone: int | None) -> _allranks.StoreHub:
    """An empty hub; `alone` is the rank that this process plays if it has no peers."""
    return _allranks.StoreHub(world_size=world_size, alone=alone, own_names=[socket.gethostname()])
