"""DistributedDataParallel on one rank: C++ Reducer and Logger over our backend."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.distributed as dist
from one_rank_support import world
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.unused = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.relu(self.a(x)))


def grads(module: nn.Module) -> list[torch.Tensor]:
    return [p.grad for p in module.parameters() if p.grad is not None]


def check(model: nn.Module, reference: nn.Module, x: torch.Tensor) -> None:
    """Under uniform, averaged gradients are this rank's own."""
    model(x).sum().backward()
    reference(x).sum().backward()
    for a, b in zip(grads(model), grads(reference), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("backend", ["gloo", "nccl", "fake", None])
def test_backward(backend: str | None) -> None:
    with world(64, 3, backend=backend):
        net = nn.Linear(4, 2)
        reference = copy.deepcopy(net)
        model = DDP(net)
        check(model, reference, torch.randn(5, 4))
        logged = model._get_ddp_logging_data()
        assert logged["world_size"] == 64
        assert logged["rank"] == 3
        assert logged["backend_name"] == (backend or "gloo")


@pytest.mark.parametrize("options", [{"find_unused_parameters": True}, {"static_graph": True}])
def test_unused_parameters(options: dict[str, bool]) -> None:
    with world(64, 3):
        net = Net()
        reference = copy.deepcopy(net)
        model = DDP(net, **options)
        for _ in range(3):
            model.zero_grad()
            reference.zero_grad()
            check(model, reference, torch.randn(5, 4))


def test_no_sync_and_hooks() -> None:
    with world(64, 3):
        net = nn.Linear(4, 2)
        reference = copy.deepcopy(net)
        model = DDP(net, gradient_as_bucket_view=True)
        model.register_comm_hook(None, default_hooks.allreduce_hook)
        x = torch.randn(5, 4)
        with model.no_sync():
            model(x).sum().backward()
        reference(x).sum().backward()
        check(model, reference, x)


def test_half_precision_hook() -> None:
    with world(8, 3):
        model = DDP(nn.Linear(4, 2))
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        model(torch.randn(5, 4)).sum().backward()
        assert len(grads(model)) == 2


def test_sparse_embedding() -> None:
    with world(64, 3):
        net = nn.Embedding(10, 3, sparse=True)
        reference = copy.deepcopy(net)
        model = DDP(net)
        ids = torch.tensor([1, 1, 7])
        model(ids).sum().backward()
        reference(ids).sum().backward()
        torch.testing.assert_close(net.weight.grad.to_dense(), reference.weight.grad.to_dense())


@pytest.mark.parametrize("fill", ["zeros", "nan"])
def test_other_fills(fill: str) -> None:
    with world(4, 0, fill):
        net = nn.Linear(4, 2)
        reference = copy.deepcopy(net)
        model = DDP(net)
        x = torch.randn(5, 4)
        model(x).sum().backward()
        reference(x).sum().backward()
        for a, b in zip(grads(model), grads(reference), strict=True):
            if fill == "nan":
                assert a.isnan().all()
            else:
                torch.testing.assert_close(a, b / 4)
    with world(4, 1, fill):
        DDP(nn.Linear(4, 2))  # Rank 0's parameters are zeros, or NaN; its shapes agree.


def test_detail_debug_level_does_not_hang() -> None:
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    try:
        with world(64, 3):
            t = torch.ones(1)
            dist.all_reduce(t)
            assert t.item() == 64.0
    finally:
        dist.set_debug_level(dist.DebugLevel.OFF)
