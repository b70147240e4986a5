"""Compared with torch's own fake backend where that promises values: `simulate_uniform_ranks`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from one_rank_support import world
from torch._C._distributed_c10d import FakeProcessGroup

N, R = 4, 2


def reduced(op: str) -> Callable[[], torch.Tensor]:
    def body() -> torch.Tensor:
        t = torch.tensor([1.0, 2.0, -3.0])
        dist.all_reduce(t, getattr(dist.ReduceOp, op))
        return t

    return body


def gathered() -> torch.Tensor:
    out = torch.zeros(3 * N)
    dist.all_gather_into_tensor(out, torch.tensor([1.0, 2.0, -3.0]))
    return out


def scattered() -> torch.Tensor:
    out = torch.zeros(3)
    dist.reduce_scatter_tensor(out, torch.arange(3.0 * N))
    return out


def exchanged() -> torch.Tensor:
    out = torch.zeros(2 * N)
    dist.all_to_all_single(out, torch.arange(2.0 * N))
    return out


def broadcast() -> torch.Tensor:
    t = torch.ones(3)
    dist.broadcast(t, 0)
    return t


@pytest.mark.skipif(
    not hasattr(FakeProcessGroup.Options(), "simulate_uniform_ranks"), reason="this torch's fake promises no values"
)
@pytest.mark.parametrize(
    "body", [reduced("SUM"), reduced("AVG"), reduced("MIN"), reduced("MAX"), gathered, scattered, exchanged, broadcast]
)
def test_equal_to_torchs_uniform_ranks(body: Callable[[], torch.Tensor]) -> None:
    options = FakeProcessGroup.Options()
    options.simulate_uniform_ranks = True
    dist.init_process_group("fake", rank=R, world_size=N, pg_options=options)
    try:
        expected = body()
    finally:
        dist.destroy_process_group()
    with world(N, R):
        assert body().tolist() == expected.tolist()
