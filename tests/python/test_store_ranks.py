"""Several ranks on one store: who waits lets others run, and places that mean the same share data."""

from __future__ import annotations

import pathlib
import threading
import types
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist
from allranks import _allranks
from allranks.backend import rendezvous, store
from torch.distributed import rendezvous as find_each_other


def ms(n: float) -> timedelta:
    return timedelta(milliseconds=n)


class Run:
    """What came of a run: a value or an exception a rank, and who waited when nobody could go on."""

    def __init__(self, world_size: int, body: Callable[[int], Any]) -> None:
        self.answers: dict[int, Any] = {}
        self.stalled: list[tuple[Any, ...]] = []
        self.baton = _allranks.Baton(schedule="round-robin", seed=0, swapper=None, on_stall=self._stall)
        hub = rendezvous.install(types.SimpleNamespace(world_size=world_size))
        threads = []
        for rank in range(world_size):
            task = self.baton.spawn(rank)
            threads.append(threading.Thread(target=self._rank, args=(task, rank, body), daemon=True))
        for thread in threads:
            thread.start()
        self.hub = hub
        self.baton.start()
        assert self.baton.wait_over(30.0), "the run ends"
        for thread in threads:
            thread.join(30)

    def _stall(self) -> None:
        self.stalled = self.hub.waiting()
        assert [(w[0], w[4]) for w in self.stalled] == self.hub.waits()
        self.baton.abort()

    def _rank(self, task: int, rank: int, body: Callable[[int], Any]) -> None:
        try:
            self.baton.attach(task, rank)
            self.answers[rank] = body(rank)
        except BaseException as e:
            self.answers[rank] = f"{type(e).__name__}: {e}"
        finally:
            self.baton.finish()


@pytest.fixture(autouse=True)
def _undo() -> Iterator[None]:
    yield
    rendezvous.uninstall()


def answers(world_size: int, body: Callable[[int], Any]) -> list[Any]:
    run = Run(world_size, body)
    assert not run.stalled, run.stalled
    return [run.answers[rank] for rank in range(world_size)]


def meet(url: str = "env://", rank: int = -1, world_size: int = -1) -> tuple[Any, int, int]:
    return next(find_each_other(url, rank, world_size))


@pytest.mark.oldest
def test_get_waits_for_another_ranks_set() -> None:
    def body(rank: int) -> bytes:
        s, me, size = meet()
        assert (me, size) == (rank, 3)
        s.set(f"k{rank}", str(rank))
        s.wait([f"k{r}" for r in range(size)])
        return s.get(f"k{(rank + 1) % size}")

    assert answers(3, body) == [b"1", b"2", b"0"]


@pytest.mark.oldest
def test_kinds_and_names_of_the_default_store() -> None:
    def body(rank: int) -> Any:
        s, *_ = meet("tcp://localhost:1234")
        assert isinstance(s, dist.Store) and isinstance(s, dist.TCPStore) and not isinstance(s, dist.FileStore)
        return s.host, s.port, s.__class__ is dist.TCPStore

    assert answers(2, body) == [("localhost", 1234, True)] * 2


def test_torchs_own_store_barrier() -> None:
    from torch.distributed.distributed_c10d import _store_based_barrier
    from torch.distributed.elastic.utils import store as elastic

    def body(rank: int) -> Any:
        prefix = dist.PrefixStore("default_pg", meet()[0])
        _store_based_barrier(rank, prefix, "0", 4, timedelta(seconds=300))
        elastic.barrier(prefix, 4, "elastic", 300)
        return elastic.synchronize(prefix, str(rank).encode(), rank, 4, "all")

    assert answers(4, body) == [[b"0", b"1", b"2", b"3"]] * 4


def test_an_explicit_timeout_expires_at_once_when_nobody_can_set_the_key() -> None:
    def body(rank: int) -> str:
        prefix = dist.PrefixStore("case", meet()[0])
        try:
            prefix.wait(["never"], timedelta(hours=1))
        except dist.DistStoreError as e:
            return str(e)
        return "returned"

    assert answers(2, body) == ["wait timeout after 3600000ms, keys: /case/never"] * 2


def test_a_timeout_that_the_script_chose_for_the_store_expires() -> None:
    def body(rank: int) -> str:
        s = dist.HashStore()
        s.set_timeout(timedelta(hours=1))
        prefix = dist.PrefixStore("p", dist.HashStore())
        prefix.set_timeout(ms(50))
        assert prefix.timeout == ms(50)
        for attempt in (lambda: s.get("x"), lambda: prefix.queue_pop("x")):
            with pytest.raises(dist.DistStoreError, match="Wait timeout"):
                attempt()
        return "both"

    assert answers(1, body) == ["both"]


def test_a_default_timeout_is_a_stall_that_names_keys_and_rank() -> None:
    def body(rank: int) -> Any:
        s, *_ = meet()
        s.set_timeout(timedelta(minutes=30))
        if rank == 0:
            return s.set("ready", "1")
        return dist.PrefixStore("a", s).get("raedy")

    # As init_process_group does it: not the script's choice.
    body = types.FunctionType(body.__code__, {**globals(), "__name__": "torch.distributed.x"}, closure=body.__closure__)
    run = Run(2, body)
    assert run.stalled == [(1, 1, "the default store (env://)", "get", ["a/raedy"], False)]
    assert run.answers[1] == "RankAborted: the run was aborted"
    assert run.hub.waiting() == []


def test_wait_returns_though_the_key_is_gone_again() -> None:
    def body(rank: int) -> Any:
        s, *_ = meet()
        if rank == 1:
            return s.wait(["k"])
        s.check(["other"])
        s.set("k", "v")
        return s.delete_key("k")

    assert answers(2, body) == [True, None]


def test_queues_wake_one_popper_an_item_in_order() -> None:
    def body(rank: int) -> Any:
        s, *_ = meet()
        if rank:
            return s.queue_pop("q")
        s.check(["other"])
        for item in ("a", "b", "c"):
            s.queue_push("q", item)
        return s.queue_len("q")

    assert answers(4, body) == [3, b"a", b"b", b"c"]


def test_loops_that_poll_come_to_an_end() -> None:
    def body(rank: int) -> int:
        s, *_ = meet()
        s.add("n", 1)
        while s.add("n", 0) < 3:
            pass
        s.set(f"done{rank}", "1")
        while not s.check(["done0", "done1", "done2"]):
            pass
        while s.compare_set("lock", "", str(rank)) != str(rank).encode():
            pass
        return s.delete_key("lock")

    assert answers(3, body) == [True] * 3


def test_barrier_of_the_store_itself() -> None:
    def body(rank: int) -> Any:
        s, *_ = meet()
        s.barrier("b", 3)
        s.set(str(rank), "")
        dist.PrefixStore("p", s).barrier("b", 3)
        return s.check(["0", "1", "2"]), sorted(s.list_keys())[-2:]

    assert answers(3, body) == [(True, ["p/b/last_member", "p/b/num_members"])] * 3


def test_tcp_stores_of_one_port_share_data_and_others_do_not() -> None:
    def body(rank: int) -> Any:
        server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if rank == 0 else None
        default, *_ = meet()
        if server is not None:
            default.set("port", str(server.port))
        mine = server or dist.TCPStore("localhost", int(default.get("port")), 3, False)
        other = dist.HashStore()
        mine.set(f"r{rank}", "v")
        mine.wait(["r0", "r1", "r2"])
        return (
            other.check(["r0"]),
            default.check(["r0"]),
            type(mine) is store.RunTCPStore,
            isinstance(mine, dist.TCPStore),
        )

    assert answers(3, body) == [(False, False, True, True)] * 3


def test_the_server_waits_for_its_workers_and_a_client_for_its_server() -> None:
    order: list[str] = []

    def body(rank: int) -> int:
        if rank == 2:
            order.append("serving")
        s = dist.TCPStore("127.0.0.1", 29511, 3, rank == 2, timedelta(seconds=30))
        order.append(f"{rank}")
        return s.num_keys()

    # torch counts the key by which workers are counted.
    assert answers(3, body) == [1, 1, 1]
    assert order[0] == "serving" and set(order) == {"serving", "0", "1", "2"}


def test_what_a_tcp_store_refuses() -> None:
    def attempt(*args: Any, **kwargs: Any) -> str:
        try:
            dist.TCPStore(*args, **kwargs)
        except Exception as e:
            return f"{type(e).__name__}: {e}"
        return "made"

    def body(rank: int) -> list[str]:
        first = dist.TCPStore("127.0.0.1", 29512, 1, True)
        taken = attempt("localhost", 29512, 1, True)
        unserved = attempt("127.0.0.1", 29513, 1, False, ms(1200))
        lonely = attempt("127.0.0.1", 29514, 2, True, ms(2000))
        first.set("k", "v")
        del first
        return [taken, unserved, lonely, attempt("127.0.0.1", 29512, 1, True)]

    (got,) = answers(1, body)
    assert got[0].startswith("DistNetworkError: The server socket has failed to listen on any local network address. ")
    assert got[1:] == [
        "DistNetworkError: The client socket has timed out after 1200ms while trying to connect to (127.0.0.1, 29513).",
        "DistStoreError: Timed out after 2 seconds waiting for clients. 1/2 clients joined.",
        "made",
    ]


def test_file_stores_of_one_path_share_data_and_the_last_removes_the_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "store"

    def body(rank: int) -> Any:
        s = dist.FileStore(str(path), 2)
        assert s.path == str(path) and path.exists()
        s.set(str(rank), "v")
        s.wait(["0", "1"], timedelta(seconds=10))
        return isinstance(s, dist.FileStore)

    assert answers(2, body) == [True, True]
    assert not path.exists()


@pytest.mark.parametrize("scheme", ["env", "tcp", "file"])
def test_gathering_again_gives_a_fresh_store(scheme: str, tmp_path: pathlib.Path) -> None:
    url = {"env": "env://", "tcp": "tcp://127.0.0.1:29515", "file": f"file://{tmp_path}/f"}[scheme]

    def body(rank: int) -> list[bool]:
        fresh = []
        for _ in range(3):
            s, me, size = meet(url, rank, 3)
            assert (me, size) == (rank, 3)
            fresh.append(not s.check([f"seen{rank}"]))
            s.set(f"seen{rank}", "1")
            s.wait(["seen0", "seen1", "seen2"])
        return fresh

    assert answers(3, body) == [[True] * 3] * 3


def test_worlds_within_the_world() -> None:
    def body(rank: int) -> Any:
        s, me, size = meet(f"tcp://127.0.0.1:{29520 + rank // 2}", rank % 2, 2)
        s.set(f"{me}", str(rank))
        s.wait(["0", "1"])
        pair = [int(s.get("0")), int(s.get("1"))]
        again, *_ = meet("tcp://127.0.0.1:29520", rank, 4)
        again.barrier("all", 4)
        return pair, size

    assert answers(4, body) == [([0, 1], 2), ([0, 1], 2), ([2, 3], 2), ([2, 3], 2)]


def test_two_ranks_that_both_say_they_are_rank_0() -> None:
    def body(rank: int) -> Any:
        return meet("tcp://127.0.0.1:29530", 0, 2)[1]

    run = Run(2, body)
    assert "address already in use" in run.answers[1]
    assert run.stalled[0][3:5] == ("wait_for_workers", ["2 workers of the default store (tcp://127.0.0.1:29530)"])


def test_what_a_url_must_have() -> None:
    def attempt(*args: Any) -> str:
        try:
            return str(meet(*args)[1:])
        except Exception as e:
            return f"{type(e).__name__}: {e}"

    def body(rank: int) -> list[str]:
        return [
            attempt("tcp://localhost"),
            attempt("file://"),
            attempt("tcp://localhost:1?rank=x"),
            attempt("tcp://localhost:1", 7, 2),
            attempt("tcp://localhost:1?rank=0", 0, 1),
            attempt("nope://"),
            attempt("tcp://localhost:1"),
        ]

    start = "ValueError: Error initializing torch.distributed using "
    assert answers(1, body) == [
        [
            start + "tcp:// rendezvous: port number missing",
            start + "file:// rendezvous: path missing",
            start + "tcp:// rendezvous: rank must be a number, not 'x'",
            start + "tcp:// rendezvous: rank 7 is not in a world of 2 ranks",
            "AssertionError: The url: tcp://localhost:1?rank=0 has node-specific arguments(rank, world_size) already.",
            "RuntimeError: No rendezvous handler for nope://",
            "(0, 1)",
        ]
    ]


def test_the_environment_says_who_one_is() -> None:
    def body(rank: int) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in (("RANK", 1 - rank), ("WORLD_SIZE", 2), ("MASTER_PORT", 4321), ("MASTER_ADDR", "there")):
                patch.setenv(name, str(value))
            s, me, size = meet()
        return me, size, s.host, s.port

    assert answers(2, body) == [(1, 2, "there", 4321), (0, 2, "there", 4321)]
