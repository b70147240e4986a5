"""Values of every operation under every fill rule, on and off the root."""

from __future__ import annotations

import math

import pytest
import torch
import torch.distributed as dist
from one_rank_support import world

pytestmark = pytest.mark.oldest

N, R = 4, 2
FILLS = ("uniform", "zeros", "nan")
X = (1.0, 2.0, -3.0)


def x() -> torch.Tensor:
    return torch.tensor(X)


def peer(fill: str, t: torch.Tensor) -> torch.Tensor:
    """What one peer contributes in the place of `t`."""
    return {"uniform": t, "zeros": torch.zeros_like(t), "nan": torch.full_like(t, torch.nan)}[fill]


def same(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def stacked(fill: str, t: torch.Tensor) -> torch.Tensor:
    return torch.stack([t if j == R else peer(fill, t) for j in range(N)])


REDUCED = {
    ("uniform", "SUM"): [4.0, 8.0, -12.0],
    ("uniform", "AVG"): list(X),
    ("uniform", "MIN"): list(X),
    ("uniform", "MAX"): list(X),
    ("uniform", "PRODUCT"): [1.0, 16.0, 81.0],
    ("zeros", "SUM"): list(X),
    ("zeros", "AVG"): [0.25, 0.5, -0.75],
    ("zeros", "MIN"): [0.0, 0.0, -3.0],
    ("zeros", "MAX"): [1.0, 2.0, 0.0],
    ("zeros", "PRODUCT"): [0.0, 0.0, 0.0],
    **{("nan", op): [math.nan] * 3 for op in ("SUM", "AVG", "MIN", "MAX", "PRODUCT")},
}


@pytest.mark.parametrize(("fill", "op"), REDUCED)
def test_reductions(fill: str, op: str) -> None:
    expected = torch.tensor(REDUCED[fill, op])
    redop = getattr(dist.ReduceOp, op)
    with world(N, R, fill):
        t = x()
        dist.all_reduce(t, redop)
        same(t, expected)
        strided = torch.zeros(3, 2)
        strided[:, 1] = x()
        dist.all_reduce(strided[:, 1], redop)
        same(strided[:, 1], expected)
        same(strided[:, 0], torch.zeros(3))
        t = x()
        dist.reduce(t, R, redop)
        same(t, expected)
        t = x()
        dist.reduce(t, 0, redop)
        same(t, x())
        everything = torch.arange(12.0)
        everything[3 * R : 3 * R + 3] = x()
        out = torch.full((3,), 99.0)
        dist.reduce_scatter_tensor(out, everything, redop)
        same(out, expected)
        out = torch.full((3,), 99.0)
        dist.reduce_scatter(out, [x() if j == R else torch.zeros(3) for j in range(N)], redop)
        same(out, expected)


@pytest.mark.parametrize("fill", FILLS)
def test_integers(fill: str) -> None:
    with world(N, R, fill):
        t = torch.tensor([3, -5])
        dist.all_reduce(t)
        assert t.tolist() == ([12, -20] if fill == "uniform" else [3, -5])
        t = torch.tensor([3, 5])
        dist.all_reduce(t, dist.ReduceOp.BXOR)
        assert t.tolist() == ([0, 0] if fill == "uniform" else [3, 5])
        t = torch.tensor([3, 5])
        dist.all_reduce(t, dist.ReduceOp.BAND)
        assert t.tolist() == ([3, 5] if fill == "uniform" else [0, 0])


@pytest.mark.parametrize("fill", FILLS)
def test_gathering(fill: str) -> None:
    expected = stacked(fill, x())
    with world(N, R, fill):
        outs = [torch.full((3,), 99.0) for _ in range(N)]
        dist.all_gather(outs, x())
        same(torch.stack(outs), expected)
        out = torch.full((12,), 99.0)
        dist.all_gather_into_tensor(out, x())
        same(out.view(N, 3), expected)
        out = torch.full((N, 3), 99.0)
        out[R] = x()
        dist.all_gather_into_tensor(out, out[R])  # In place.
        same(out, expected)
        wide = torch.full((3, 2 * N), 99.0)
        outs = [wide[:, 2 * j] for j in range(N)]
        dist.all_gather(outs, x())
        same(wide[:, ::2].T.contiguous(), expected)
        assert (wide[:, 1::2] == 99).all()
        outs = [torch.full((3,), 99.0) for _ in range(N)]
        dist.gather(x(), outs, dst=R)
        same(torch.stack(outs), expected)
        t = x()
        dist.gather(t, dst=0)
        same(t, x())


@pytest.mark.parametrize("fill", FILLS)
def test_rooted(fill: str) -> None:
    with world(N, R, fill):
        t = x()
        dist.broadcast(t, R)
        same(t, x())
        t = x()
        dist.broadcast(t, 0)
        same(t, peer(fill, x()))
        out = torch.full((3,), 99.0)
        dist.scatter(out, [x() + j for j in range(N)], src=R)
        same(out, x() + R)
        out = torch.full((3,), 99.0)
        dist.scatter(out, src=0)
        same(out, torch.full((3,), torch.nan) if fill == "nan" else torch.zeros(3))
        out = torch.full((3,), 99.0)
        dist.recv(out, 0)
        same(out, torch.full((3,), torch.nan) if fill == "nan" else torch.zeros(3))
        t = x()
        dist.send(t, 0)
        same(t, x())


@pytest.mark.parametrize("fill", FILLS)
def test_all_to_all(fill: str) -> None:
    source = torch.arange(8.0)
    mine = source[2 * R : 2 * R + 2]
    with world(N, R, fill):
        out = torch.full((8,), 99.0)
        dist.all_to_all_single(out, source)
        same(out.view(N, 2), stacked(fill, mine))
        # Lists, which gloo itself refuses on CPU only where the profile says so.
        outs = [torch.full((2,), 99.0) for _ in range(N)]
        group = dist.new_group(backend="allranks")
        dist.all_to_all(outs, list(source.view(N, 2).unbind()), group=group)
        same(torch.stack(outs), stacked(fill, mine))


def test_uneven_all_to_all_repeats_and_cuts() -> None:
    with world(N, R):
        source = torch.arange(10.0).view(5, 2)
        out = torch.full((7, 2), 99.0)
        # This rank sends itself rows 1 and 2; from the others it expects 1, 3 and 1 rows.
        dist.all_to_all_single(out, source, output_split_sizes=[1, 3, 2, 1], input_split_sizes=[1, 0, 2, 2])
        a, b = source[1], source[2]
        same(out, torch.stack([a, a, b, a, a, b, a]))


@pytest.mark.parametrize("fill", FILLS)
def test_data_dependent_splits(fill: str) -> None:
    with world(N, R, fill):
        send = torch.tensor([2, 0, 3, 1])
        receive = torch.full_like(send, 99)
        dist.all_to_all_single(receive, send)
        tokens = torch.randn(6, 5, requires_grad=True)
        out = torch.full((int(receive.sum()), 5), 99.0)
        dist.all_to_all_single(out, tokens, receive.tolist(), send.tolist())
        own = out.view(-1, 5)[int(receive[:R].sum()) :][:3]
        same(own, tokens.detach()[2:5])


def test_own_part_must_agree() -> None:
    with world(N, R), pytest.raises(RuntimeError, match="sends itself 2 elements but expects 1"):
        dist.all_to_all_single(torch.empty(4), torch.ones(5), [1, 1, 1, 1], [1, 1, 2, 1])


def test_what_nobody_wrote_is_zero() -> None:
    with world(N, R):
        for _ in range(20):
            torch.full((1000,), 7.0)
            t = torch.empty(1000)
            dist.broadcast(t, 0)
            assert (t == 0).all()
            assert (torch.empty_like(t) == 0).all()
            assert (t.new_empty(1000) == 0).all()
    assert torch.empty.__module__ != "allranks.one_rank.memory"
