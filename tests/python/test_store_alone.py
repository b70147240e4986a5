"""One rank of many, without peers: nothing blocks, and what is answered follows the stated rule."""

from __future__ import annotations

import os
import time
import types
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist
from allranks.backend import rendezvous
from torch.distributed import rendezvous as find_each_other

pytestmark = pytest.mark.oldest

RANK, WORLD = 17, 131_072


@pytest.fixture
def default() -> Iterator[Any]:
    rendezvous.install(types.SimpleNamespace(world_size=WORLD, rank=RANK))
    found, rank, size = next(find_each_other("tcp://localhost:29500", -1, -1))
    assert (rank, size) == (RANK, WORLD)
    yield found
    rendezvous.uninstall()


def test_a_peers_key_has_the_value_of_mine(default: Any) -> None:
    default.set(f"k{RANK}", "mine")
    default.set(f"{RANK}->3", "sent")
    default.set(f"part-{RANK:05}", "padded")
    assert default.get("k3") == b"mine"
    assert default.get(f"k{WORLD - 1}") == b"mine"
    assert default.get(f"3->{RANK}") == b"sent"
    assert default.get("part-00042") == b"padded"
    default.wait(["k0", "k1", f"k{RANK}"])
    assert default.check(["k5", "k6"])
    assert default.multi_get(["k0", "k1"]) == [b"mine", b"mine"]


@pytest.mark.parametrize("key", ["ready", f"k{WORLD}", "kx"])
def test_a_key_that_nobody_sets_is_an_error_at_once(default: Any, key: str) -> None:
    default.set(f"k{RANK}", "mine")
    text = f'no peer exists in one-rank mode .*rank {RANK} of {WORLD}.*\'?"p/{key}"'
    prefix = dist.PrefixStore("p", default)
    for attempt in (
        lambda: prefix.get(key),
        lambda: prefix.wait([key]),
        lambda: prefix.wait([key], timedelta(hours=1)),
        lambda: prefix.queue_pop(key),
    ):
        with pytest.raises(dist.DistStoreError, match=text):
            attempt()
    assert not prefix.check([key])


def test_barriers_of_torch_end(default: Any) -> None:
    from torch.distributed.distributed_c10d import _store_based_barrier
    from torch.distributed.elastic.utils import store as elastic

    start = time.monotonic()
    prefix = dist.PrefixStore("default_pg", default)
    _store_based_barrier(RANK, prefix, "0", WORLD, timedelta(seconds=300))
    _store_based_barrier(RANK, prefix, "subgroup", 4, timedelta(seconds=300))
    elastic.barrier(prefix, WORLD, "elastic", 300)
    elastic.barrier(prefix, 6, "some", 300)
    default.barrier("own", WORLD)
    prefix.barrier("of a prefix", 12)
    dist.HashStore().barrier("hash", WORLD)
    assert time.monotonic() - start < 5
    assert default.add("arrived", 1) == WORLD
    assert default.add("arrived", 0) == WORLD
    assert default.add("arrived", -1) == 0


def test_what_is_this_ranks_alone(default: Any) -> None:
    assert default.compare_set("lock", "", "17") == b"17"
    default.append("log", "a")
    assert default.get("log") == b"a"
    default.queue_push("q", "x")
    assert default.queue_pop("q") == b"x"
    with pytest.raises(dist.QueueEmptyError):
        default.queue_pop("q", False)
    assert default.delete_key("lock")


def test_stores_of_the_script_wait_for_nobody(default: Any, tmp_path: Any) -> None:
    server = dist.TCPStore("localhost", 29600, WORLD, True)
    client = dist.TCPStore("somewhere.else", 29601, WORLD, False)
    assert isinstance(server, dist.TCPStore) and isinstance(client, dist.TCPStore)
    path = tmp_path / "f"
    file = dist.FileStore(str(path), WORLD)
    assert path.exists()
    file.set("a", "b")
    del file
    assert not path.exists()


def test_initialising_again_gives_a_fresh_store(default: Any) -> None:
    default.set("a", "b")
    assert not next(find_each_other("tcp://localhost:29500", RANK, WORLD))[0].check(["a"])


def test_real_stores_afterwards(default: Any) -> None:
    rendezvous.uninstall()
    assert type(dist.HashStore()) is dist.HashStore


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_has_no_part(default: Any) -> None:
    assert isinstance(dist.HashStore(), dist.HashStore) and type(dist.HashStore()) is not dist.HashStore
    child = os.fork()
    if child == 0:
        os._exit(0 if type(dist.HashStore()) is dist.HashStore else 1)
    assert os.waitpid(child, 0)[1] == 0
