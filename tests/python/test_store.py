"""One body of operations, run on torch's real stores and on ours: the answers and the exceptions are the same."""

from __future__ import annotations

import pathlib
import types
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist
from allranks.backend import rendezvous, store

pytestmark = pytest.mark.oldest

# An expression a line, evaluated with `s`, `ms` and `dist`; where `kinds` are named, for those only.
PLAIN = """
s.num_keys()
s.has_extended_api()
s.set("a", "1")
s.get("a")
s.get("missing")
s.set("b", b"\\xff\\x00x")
s.get("b")
s.add("n", 5)
s.add("n", -7)
s.add("n", 0)
s.get("n")
s.add("z", 0)
s.check(["z"])
s.add("a", 3)
s.set("text", " 12abc")
s.add("text", 1)
s.get("text")
s.set("big", "9223372036854775807")
s.add("big", 1)
s.check([])
s.check(["a"])
s.check(["a", "nope"])
s.wait([])
s.wait(["a", "b"], ms(100))
s.wait(["nope"])
s.wait(["nope"], ms(20))
s.wait(["nope"], 0.02)
s.wait(["a", "nope", "nope2"], ms(20))
s.compare_set("cs", "", "first")
s.compare_set("cs", "first", "second")
s.compare_set("cs", "first", "third")
s.compare_set("cs2", "x", "y")
s.check(["cs2"])
s.compare_set("cs", b"second", b"\\xff\\x01")
s.get("cs")
s.append("ap", "ab")
s.append("ap", b"cd\\xff")
s.get("ap")
s.multi_set(["m1", "m2"], ["x", b"\\xfe"])
s.multi_set([], [])
s.multi_get(["m1", "m2"])
s.multi_get(["m1", "nope"])
s.delete_key("m1")
s.delete_key("m1")
s.check(["m1"])
s.num_keys()
sorted(k for k in s.list_keys() if k != "efcount/")
s.queue_len("q")
s.queue_push("q", "1")
s.queue_push("q", b"\\xff2")
s.queue_len("q")
s.check(["q"])
s.num_keys()
s.queue_pop("q")
s.queue_pop("q", False)
s.queue_pop("q", block=False)
s.queue_pop("q")
s.queue_len("q")
s.check(["q"])
s.queue_push("q2", "v")
s.wait(["q2"], ms(20))
s.delete_key("q2")
s.queue_len("q2")
s.queue_push("a", "v")
s.queue_pop("a")
s.barrier("bar", 1)
s.barrier("bar", 1)
s.barrier("bar2", 2, ms(20))
s.barrier("bar2", 2, ms(20))
s.barrier("bar2", 2)
sorted(k for k in s.list_keys() if "bar" in k)
[(k, s.get(k)) for k in sorted(s.list_keys()) if "bar" in k]
s.clone().get("a")
s.clone().timeout
s.timeout
s.set_timeout(ms(30))
s.timeout
s.get("nope")
s.set("", "empty")
s.get("")
s.set("\\u00e9", "\\u00fc")
s.get("\\u00e9")
s.set(b"bytes", "v")
s.get("bytes")
isinstance(s, dist.Store)
isinstance(s, dist.TCPStore), isinstance(s, dist.HashStore), isinstance(s, dist.FileStore)
"""

BAD_ARGUMENTS = ['s.set("c", 5)', 's.set(5, "a")', 's.add("n", "1")', 's.add("n", 1.5)', 's.check("a")', 's.set("k")']

NOT_A_NUMBER = [("hash", "hello"), ("file", "hello"), ("tcp", "hello"), ("hash", "9" * 20), ("tcp", ""), ("hash", "")]


def ms(n: float) -> timedelta:
    return timedelta(milliseconds=n)


def answer(s: Any, line: str) -> str:
    try:
        return repr(eval(line, {"s": s, "ms": ms, "dist": dist}))
    except Exception as e:
        return f"{type(e).__name__}: {e}"


def make(kind: str, path: pathlib.Path) -> Any:
    if kind == "tcp":
        return dist.TCPStore("127.0.0.1", 0, None, True, ms(60), False)
    s: Any = dist.HashStore() if kind == "hash" else dist.FileStore(str(path), 1)
    s.set_timeout(ms(60))
    return s


@pytest.fixture
def ours() -> Iterator[Any]:
    """A run in which this process is the only rank, with no peer that could be waited for."""
    yield lambda: rendezvous.install(types.SimpleNamespace(world_size=1))
    rendezvous.uninstall()


def both(kind: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], wrap: Any) -> None:
    real = wrap(make(kind, tmp_path / "real"))
    want = [(line, answer(real, line)) for line in lines]
    rendezvous.install(types.SimpleNamespace(world_size=1))
    # This thread is no rank: it waits in real time, as the real store does.
    monkeypatch.setattr(store, "active", store.hub)
    mine = wrap(make(kind, tmp_path / "ours"))
    assert issubclass(type(mine if wrap is plain else mine._underlying_non_prefix_store), store.RunStore)
    assert [(line, answer(mine, line)) for line in lines] == want


def plain(s: Any) -> Any:
    return s


def prefixed(s: Any) -> Any:
    return dist.PrefixStore("outer", dist.PrefixStore("inner", s))


@pytest.mark.parametrize("kind", ["tcp", "hash"])
def test_same_answers(kind: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, ours: Any) -> None:
    both(kind, tmp_path, monkeypatch, PLAIN.strip().splitlines(), plain)


@pytest.mark.slow
def test_same_answers_of_a_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, ours: Any) -> None:
    both("file", tmp_path, monkeypatch, PLAIN.strip().splitlines(), plain)


@pytest.mark.parametrize("kind", ["tcp", "hash"])
def test_same_answers_through_prefixes(
    kind: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, ours: Any
) -> None:
    # A barrier without a time-out of its own waits for 300 s there.
    lines = [line for line in PLAIN.strip().splitlines() if line != 's.barrier("bar2", 2)']
    both(kind, tmp_path, monkeypatch, lines, prefixed)


@pytest.mark.parametrize(("kind", "value"), NOT_A_NUMBER)
def test_add_to_what_is_no_number(
    kind: str, value: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, ours: Any
) -> None:
    def attempt(s: Any) -> str:
        s.set("w", value)
        return answer(s, 's.add("w", 1)').split("(add")[0].strip()

    want = attempt(make(kind, tmp_path / "real"))
    ours()
    monkeypatch.setattr(store, "active", store.hub)
    assert attempt(make(kind, tmp_path / "ours")) == want


@pytest.mark.parametrize("line", BAD_ARGUMENTS)
def test_wrong_types_are_type_errors(line: str, monkeypatch: pytest.MonkeyPatch, ours: Any) -> None:
    assert answer(dist.HashStore(), line).startswith("TypeError")
    ours()
    monkeypatch.setattr(store, "active", store.hub)
    assert answer(dist.HashStore(), line).startswith("TypeError")


def test_real_classes_outside_rank_threads_and_afterwards(ours: Any) -> None:
    ours()
    assert type(dist.HashStore()) is dist.HashStore
    server = dist.TCPStore("127.0.0.1", 0, None, True, ms(500), False)
    assert type(server) is dist.TCPStore
    prefix = dist.PrefixStore("p", server)
    prefix.queue_push("q", "1")
    assert server.queue_len("p/q") == 1
    prefix.barrier("b", 1)
    prefix.set_timeout(ms(20))
    assert server.timeout == ms(20)
    rendezvous.uninstall()
    assert type(dist.HashStore()) is dist.HashStore
    assert "__new__" not in vars(dist.HashStore)
    dist.PrefixStore("p", dist.HashStore()).set("k", "v")


def test_a_prefix_keeps_its_store(monkeypatch: pytest.MonkeyPatch, ours: Any) -> None:
    ours()
    monkeypatch.setattr(store, "active", store.hub)
    prefix = dist.PrefixStore("outer", dist.PrefixStore("inner", dist.HashStore()))
    prefix.set("k", "v")
    assert prefix.get("k") == b"v"
    assert prefix._underlying_non_prefix_store.list_keys() == ["inner/outer/k"]
    assert prefix.clone().get("k") == b"v"
