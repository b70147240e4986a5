"""How the ranks of a run find each other: env://, tcp:// and file:// give a store of the run.

What the script says counts (arguments, or `?rank=..&world_size=..` of the URL, or the environment): a script may make a
world of two of four ranks. What it does not say is the run's. Ranks that gather at one place a second time (destroy and
initialise again) get a fresh store, so nothing of the first time is in their way.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import ParseResult, urlparse

from torch.distributed.constants import default_pg_timeout

from allranks import _allranks
from allranks.backend import prefix
from allranks.backend import store as stores

Gathered = Iterator[tuple[stores.RunStore, int, int]]

_runtime: Any = None
_saved: dict[str, Any] = {}


def _handlers() -> dict[str, Any]:
    # The name in the package is the function.
    return sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers


def _number(scheme: str, name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(
            f"Error initializing torch.distributed using {scheme}:// rendezvous: {name} must be a number, not {text!r}"
        ) from None


def _seat(url: ParseResult) -> tuple[int, int]:
    """Rank and world size: of the URL, else of the environment (env:// only), else of the run."""
    query = dict(pair.split("=", 1) for pair in url.query.split("&") if "=" in pair)
    env = os.environ if url.scheme == "env" else {}
    mine = _allranks.current_rank()
    here = mine if mine is not None else (getattr(_runtime, "rank", None) or 0)
    rank = _number(url.scheme, "rank", query.get("rank") or env.get("RANK") or str(here))
    world_size = _number(url.scheme, "world_size", query.get("world_size") or env.get("WORLD_SIZE") or "-1")
    if world_size < 0:
        world_size = _runtime.world_size
    if not 0 <= rank < world_size:
        raise ValueError(
            f"Error initializing torch.distributed using {url.scheme}:// rendezvous: "
            f"rank {rank} is not in a world of {world_size} ranks"
        )
    return rank, world_size


def _again(scheme: str, word: str = "re-rendezvous") -> RuntimeError:
    return RuntimeError(f"Unable to perform {word} using {scheme}:// method")


def _tcp(hub: _allranks.StoreHub, url: ParseResult, timeout: timedelta) -> Gathered:
    rank, world_size = _seat(url)
    if url.scheme == "env":
        host, port = os.environ.get("MASTER_ADDR") or "localhost", int(os.environ.get("MASTER_PORT") or 29500)
    elif url.port is None:
        raise ValueError("Error initializing torch.distributed using tcp:// rendezvous: port number missing")
    else:
        host, port = url.hostname or "localhost", url.port
    if not 0 <= port < 2**16:
        raise ValueError(f"port must have value from 0 to 65535 but was {port}.")
    place = "env://" if url.scheme == "env" else f"tcp://{host}:{port}"
    core = hub.rendezvous(place, host=host, port=port, rank=rank, world_size=world_size)
    store = stores.default_store(core, host)
    store.set_timeout(timeout)
    yield store, rank, world_size
    raise _again(url.scheme)


def _file(hub: _allranks.StoreHub, url: ParseResult, _timeout: timedelta) -> Gathered:
    path = url.netloc + url.path if sys.platform == "win32" else url.path
    if not path:
        raise ValueError("Error initializing torch.distributed using file:// rendezvous: path missing")
    rank, world_size = _seat(url)
    core = hub.rendezvous_file(path, rank=rank, world_size=world_size)
    yield stores.default_store(core, None, path), rank, world_size
    raise _again("file", "rerendezvous")


def _handler(original: Any, ours: Callable[[_allranks.StoreHub, ParseResult, timedelta], Gathered]) -> Any:
    def handler(url: str, timeout: timedelta = default_pg_timeout, **kwargs: Any) -> Any:
        hub = stores.active()
        if hub is None:
            return original(url, timeout=timeout, **kwargs)
        return ours(hub, urlparse(url), timeout)

    return handler


def install(runtime: Any) -> _allranks.StoreHub:
    """Rendezvous and stores are of the run of `runtime` from now on: `world_size`, and `rank` if there are no peers.

    Returns the hub, whose `waits()` is what the report of a stall needs.
    """
    global _runtime
    running = stores.hub()
    if running is not None and _runtime is runtime:
        return running
    _runtime = runtime
    hub = stores.make_hub(runtime.world_size, getattr(runtime, "rank", None))
    stores.install(hub)
    prefix.install()
    handlers = _handlers()
    if not _saved:
        for scheme, ours in (("env", _tcp), ("tcp", _tcp), ("file", _file)):
            _saved[scheme] = handlers[scheme]
            handlers[scheme] = _handler(_saved[scheme], ours)
    return hub


def uninstall() -> None:
    """Puts torch's own back."""
    global _runtime
    _runtime = None
    _handlers().update(_saved)
    _saved.clear()
    prefix.uninstall()
    stores.uninstall()
