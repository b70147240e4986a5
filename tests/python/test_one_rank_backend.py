"""The backend as torch sees it: names, Work, sequence numbers, coalescing, messages, groups, refusals, dtypes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from allranks import one_rank
from allranks.one_rank.session import backend_of
from one_rank_support import world
from torch.distributed import distributed_c10d as c10d

pytestmark = pytest.mark.oldest

FLOATS = ["float64", "float32", "float16", "bfloat16"]
SMALL_FLOATS = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
COMPLEX = ["complex128", "complex64", "complex32"]
INTEGERS = ["int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"]


@pytest.mark.parametrize("name", ["gloo", "nccl", "cpu:gloo,cuda:nccl", "fake", "allranks", None])
def test_names(name: str | None) -> None:
    with world(64, 3, backend=name):
        assert (dist.get_rank(), dist.get_world_size()) == (3, 64)
        backend = backend_of(None)
        assert backend is not None
        assert backend.name() == {"cpu:gloo,cuda:nccl": "gloo", None: "gloo"}.get(name, name)
        t = torch.ones(2)
        dist.all_reduce(t)
        assert t.tolist() == [64.0, 64.0]


def test_script_may_name_its_own_fake_world() -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    one_rank.install(64, 3)
    try:
        store = FakeStore()
        dist.init_process_group("fake", store=store, rank=1, world_size=8)
        assert (dist.get_rank(), dist.get_world_size()) == (1, 8)
        mine = c10d._get_default_store()
        mine.set("k", "v")
        assert mine.get("k") == b"v"
    finally:
        dist.destroy_process_group()
        one_rank.uninstall()


def test_work() -> None:
    with world(4, 1):
        t = torch.ones(2)
        assert dist.all_reduce(t) is None
        work = dist.all_reduce(t, async_op=True)
        assert work is not None
        assert work.is_completed()
        assert work.wait()
        assert work.wait(timedelta(seconds=1))
        assert work.is_success()
        assert work.result()[0].tolist() == [16.0, 16.0]
        future = work.get_future()
        assert future.done()
        assert future.value()[0] is t
        assert future.then(lambda f: f.value()[0].sum().item()).wait() == 32.0
        assert dist.barrier(async_op=True).is_completed()


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_sequence_numbers(backend: str) -> None:
    """gloo's numbers were read off real gloo; NCCL counts collectives."""
    with world(4, 1, backend=backend):
        group = c10d._get_default_group()
        gloo = backend == "gloo"

        def grown(body: Callable[[], object]) -> int:
            before = group._get_sequence_number_for_group()
            body()
            return group._get_sequence_number_for_group() - before

        def coalesced() -> None:
            with c10d._coalescing_manager():
                dist.reduce_scatter_tensor(torch.empty(1), torch.ones(4))
                dist.reduce_scatter_tensor(torch.empty(1), torch.ones(4))

        t = torch.ones(2)
        assert group._get_sequence_number_for_group() == 0
        assert grown(lambda: dist.all_reduce(t)) == 1
        assert grown(lambda: dist.broadcast(t, 0)) == 1
        assert grown(dist.barrier) == 1
        assert grown(lambda: dist.all_gather_object([None] * 4, 1)) == 2
        assert grown(lambda: dist.send(t, 0)) == (1 if gloo else 0)
        assert grown(lambda: dist.recv(t, 0)) == (1 if gloo else 0)
        assert grown(coalesced) == (2 if gloo else 1)
        if gloo:
            assert grown(dist.monitored_barrier) == 2
        other = dist.new_group([0, 1])
        assert grown(lambda: dist.all_reduce(t, group=other)) == 0
        assert other._get_sequence_number_for_group() == 1


def test_coalescing() -> None:
    with world(4, 1):
        group = c10d._get_default_group()
        a, b = torch.ones(2), torch.full((3,), 2.0)
        with c10d._coalescing_manager():
            dist.all_reduce(a)
            dist.all_reduce(b)
        assert (a.tolist(), b.tolist()) == ([4.0] * 2, [8.0] * 3)
        outs = [torch.zeros(8), torch.zeros(4)]
        with c10d._coalescing_manager(async_ops=True) as manager:
            dist.all_gather_into_tensor(outs[0], a[:2])
            dist.all_gather_into_tensor(outs[1], b[:1])
        manager.wait()
        assert (outs[0].tolist(), outs[1].tolist()) == ([4.0] * 8, [8.0] * 4)
        outs = [torch.zeros(2), torch.zeros(1)]
        with c10d._coalescing_manager():
            dist.reduce_scatter_tensor(outs[0], torch.arange(8.0))
            dist.reduce_scatter_tensor(outs[1], torch.arange(4.0))
        assert (outs[0].tolist(), outs[1].tolist()) == ([8.0, 12.0], [4.0])
        with c10d._coalescing_manager(device=torch.device("cpu")):
            dist.all_reduce(a)
            dist.all_reduce(b)
        assert (a.tolist(), b.tolist()) == ([16.0] * 2, [32.0] * 3)
        before = group._get_sequence_number_for_group()
        dist.all_gather_coalesced([[torch.zeros(2), torch.zeros(3)] for _ in range(4)], [a, b])
        dist.all_reduce_coalesced([a, b])
        assert group._get_sequence_number_for_group() == before + 2
        assert a.tolist() == [64.0] * 2


def test_all_gather_coalesced_values() -> None:
    with world(3, 1):
        outs = [[torch.zeros(2), torch.zeros(3)] for _ in range(3)]
        dist.all_gather_coalesced(outs, [torch.ones(2), torch.full((3,), 2.0)])
        assert [[t.tolist() for t in member] for member in outs] == [[[1.0] * 2, [2.0] * 3]] * 3


def test_messages() -> None:
    with world(4, 1):
        t = torch.ones(3)
        assert dist.recv(t) == 0
        ops = [dist.P2POp(dist.isend, torch.ones(2), 2), dist.P2POp(dist.irecv, t, 0)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        assert t.tolist() == [0.0] * 3
        request = dist.irecv(t)
        assert request is not None
        request.wait()
        assert request._source_rank() == 0
        dist.isend(t, 3).wait()


def test_groups() -> None:
    with world(8, 5):
        assert dist.new_group([0, 1]) is dist.GroupMember.NON_GROUP_MEMBER
        group = dist.new_group([7, 5, 3])
        assert (dist.get_rank(group), dist.get_world_size(group)) == (1, 3)
        assert dist.get_process_group_ranks(group) == [3, 5, 7]
        local = dist.new_group([5, 6], use_local_synchronization=True)
        assert dist.get_rank(local) == 0
        mine, all_of_them = dist.new_subgroups(2)
        assert dist.get_process_group_ranks(mine) == [4, 5]
        assert len(all_of_them) == 4
        dist.monitored_barrier(timeout=timedelta(seconds=1), wait_all_ranks=True)
        c10d._set_pg_timeout(timedelta(seconds=3), group)
        group._get_backend(torch.device("cpu"))._set_default_timeout(timedelta(seconds=3))
        child = backend_of(None).split(None, [1, 5, 6], None)  # type: ignore[union-attr]
        assert (child.rank(), child.size()) == (1, 3)
        assert backend_of(None).split(None, [0, 1], None) is None  # type: ignore[union-attr]
        merged = backend_of(None).merge(None, None, 2, 16)  # type: ignore[union-attr]
        assert (merged.rank(), merged.size()) == (2, 16)


@pytest.mark.skipif(torch.__version__ < "2.15", reason="torch 2.14 splits groups bound to an accelerator only")
def test_split_group() -> None:
    with world(8, 5):
        group = dist.split_group(split_ranks=[[0, 1, 2, 3], [4, 5, 6, 7]])
        assert group is not None
        assert (dist.get_rank(group), dist.get_world_size(group)) == (1, 4)
        t = torch.ones(1)
        dist.all_reduce(t, group=group)
        assert t.item() == 4.0


def test_gloo_refuses_what_gloo_refuses() -> None:
    with world(4, 1):
        with pytest.raises(RuntimeError, match="Invalid scalar type"):
            dist.all_reduce(torch.ones(2, dtype=torch.int16))
        with pytest.raises(RuntimeError, match="can't be cast"):
            dist.all_reduce(torch.ones(2, dtype=torch.int64), dist.ReduceOp.AVG)
    with world(4, 1, backend="allranks"):
        t = torch.ones(2, dtype=torch.int16)
        dist.all_reduce(t)
        assert t.tolist() == [4, 4]
    with world(4, 1, backend="allranks", profile="gloo"), pytest.raises(RuntimeError, match="Invalid scalar type"):
        dist.all_reduce(torch.ones(2, dtype=torch.int16))


@pytest.mark.parametrize("name", FLOATS + SMALL_FLOATS + COMPLEX + INTEGERS)
def test_dtypes(name: str) -> None:
    dtype = getattr(torch, name)
    with world(2, 1, backend="allranks"):
        t = torch.tensor([1, 0]).to(dtype) if name != "float8_e8m0fnu" else torch.tensor([1.0, 2.0]).to(dtype)
        expected = t.clone()
        out = torch.empty(4, dtype=dtype)
        dist.all_gather_into_tensor(out, t)
        assert out.view(torch.uint8).tolist() == torch.cat([expected, expected]).view(torch.uint8).tolist()
        dist.all_reduce(t)
        factor = 1 if name == "bool" else 2
        wide = torch.complex64 if "complex" in name else torch.float64
        assert t.to(wide).tolist() == (expected.to(wide) * factor).tolist()
        strided = torch.stack([expected, expected], 1)[:, 0]
        dist.all_reduce(strided)
        assert strided.to(wide).tolist() == (expected.to(wide) * factor).tolist()


def test_unknown_dtype_is_an_error() -> None:
    with world(2, 1, backend="allranks"), pytest.raises(NotImplementedError, match="does not know"):
        dist.all_reduce(torch.empty(2, dtype=torch.float4_e2m1fn_x2))


def test_premul_sum() -> None:
    with world(4, 1, backend="allranks"):
        t = torch.full((2,), 3.0)
        dist.all_reduce(t, torch.distributed._make_nccl_premul_sum(0.5))
        assert t.tolist() == [6.0, 6.0]


def test_sparse() -> None:
    with world(4, 1):
        t = torch.sparse_coo_tensor([[0, 2, 0]], [1.0, 2.0, 3.0], (4,), check_invariants=True)
        dist.all_reduce(t)
        assert t.to_dense().tolist() == [16.0, 0.0, 8.0, 0.0]
        with pytest.raises((RuntimeError, ValueError)):
            dist.all_reduce(t, dist.ReduceOp.MAX)


def test_requires_grad() -> None:
    with world(4, 1):
        p = torch.nn.Parameter(torch.ones(3))
        dist.all_reduce(p)
        dist.broadcast(p, 0)
        out = torch.empty(12)
        dist.all_gather_into_tensor(out, p)
        assert p.tolist() == [4.0] * 3
        assert out.tolist() == [4.0] * 12


def test_counts_and_records() -> None:
    with world(4, 1):
        one_rank.record(10)
        dist.all_reduce(torch.ones(1000))
        dist.send(torch.ones(10), 0)
        record = one_rank.records()[0]
        assert record["kind"] == "all_reduce"
        assert record["inputs"] == ["float32 (1000,)"]
        assert record["reduce_op"] == "sum"
        assert record["site"][0].endswith("test_one_rank_backend.py")
        for _ in range(20):
            dist.barrier()
        assert len(one_rank.records()) == 10
        operations, groups = one_rank.summary()
        assert dict(operations) == {"all_reduce": 1, "send": 1, "barrier": 20}
        assert groups == [("WORLD", 4, 2 * 4000 * 3 // 4 + 40)]
        one_rank.record(0)


def test_again_and_again() -> None:
    one_rank.install(4, 1)
    try:
        for _ in range(3):
            dist.init_process_group("gloo")
            dist.barrier()
            dist.destroy_process_group()
    finally:
        one_rank.uninstall()
    assert not dist.is_initialized()


def test_uninstall_gives_torch_back() -> None:
    before = (torch.empty, dist.broadcast_object_list, dist.init_process_group, c10d.Work.is_completed)
    with world(4, 1):
        assert dist.broadcast_object_list is not before[1]
    assert before == (torch.empty, dist.broadcast_object_list, dist.init_process_group, c10d.Work.is_completed)
