"""DTensor, FSDP1, FSDP2, HSDP, tensor parallel, loss parallel, functional collectives and autograd through them."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from one_rank_support import world
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))


def test_functional_collectives() -> None:
    with world(4, 1):
        group = dist.group.WORLD
        x = torch.arange(4.0, requires_grad=True)
        assert funcol.all_reduce(x.detach(), "sum", group).tolist() == [0.0, 4.0, 8.0, 12.0]
        y = funcol.all_gather_tensor_autograd(x, 0, group)
        assert y.shape == (16,)
        y.sum().backward()
        assert x.grad.tolist() == [4.0] * 4  # reduce_scatter of ones, 4 ranks.
        z = funcol.reduce_scatter_tensor_autograd(x, "sum", 0, group)
        assert z.tolist() == [4.0]
        z.backward()
        assert funcol.all_to_all_single(x.detach(), None, None, group).tolist() == [1.0] * 4
        assert funcol.broadcast(x.detach(), 0, group).tolist() == x.tolist()
        outs = funcol.all_reduce_coalesced([x.detach(), x.detach()], "sum", group)
        assert [o.tolist() for o in outs] == [[0.0, 4.0, 8.0, 12.0]] * 2


def test_dtensor() -> None:
    with world(8, 5):
        mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("a", "b"))
        full = torch.arange(32.0).view(8, 4)
        t = distribute_tensor(full, mesh, [Shard(0), Shard(1)])
        assert t.to_local().shape == (4, 1)
        assert t.full_tensor().shape == (8, 4)
        r = t.redistribute(mesh, [Replicate(), Replicate()])
        assert r.to_local().shape == (8, 4)
        total = (t @ distribute_tensor(full.T.contiguous(), mesh, [Replicate(), Shard(0)])).full_tensor()
        assert total.shape == (8, 8)
        moved = t.redistribute(mesh, [Shard(1), Replicate()])
        assert moved.to_local().shape == (8, 2)


@pytest.mark.parametrize("backend", ["gloo", "nccl", "fake"])
def test_fsdp2(backend: str) -> None:
    with world(8, 5, backend=backend):
        model = mlp()
        for layer in (model[0], model[2]):
            fully_shard(layer)
        fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        weight = model[0].weight
        assert isinstance(weight, DTensor)
        assert weight.to_local().shape == (2, 8)


def test_hsdp_and_tensor_parallel() -> None:
    with world(16, 5):
        mesh = init_device_mesh("cpu", (2, 2, 4), mesh_dim_names=("replicate", "shard", "tp"))
        model = mlp()
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        assert model[0].weight.to_local().shape == (4, 8)
        fully_shard(model, mesh=mesh["replicate", "shard"])
        model(torch.randn(4, 8)).sum().backward()
        assert model[0].weight.grad.to_local().shape == (2, 8)


def test_tensor_parallel_values() -> None:
    """A row-wise output is N times this rank's share under uniform."""
    with world(2, 1):
        mesh = init_device_mesh("cpu", (2,))
        model = mlp()
        reference = copy.deepcopy(model)
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        x = torch.randn(4, 8)
        hidden = torch.relu(x @ reference[0].weight[8:].T + reference[0].bias[8:])
        expected = 2 * (hidden @ reference[2].weight[:, 8:].T) + reference[2].bias
        torch.testing.assert_close(model(x), expected)


def test_loss_parallel() -> None:
    with world(4, 2):
        mesh = init_device_mesh("cpu", (4,))
        logits = distribute_tensor(torch.randn(6, 16, requires_grad=True), mesh, [Shard(1)])
        with loss_parallel():
            loss = nn.functional.cross_entropy(logits, torch.randint(16, (6,)))
            loss.backward()
        assert isinstance(loss, DTensor)


@pytest.mark.parametrize("use_orig_params", [True, False])
def test_fsdp1(use_orig_params: bool) -> None:
    with world(8, 5):
        model = FullyShardedDataParallel(mlp(), device_id=torch.device("cpu"), use_orig_params=use_orig_params)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
        assert sum(p.numel() for p in model.parameters()) == (8 * 16 + 16 + 16 * 8 + 8) // 8


def test_mesh_collectives() -> None:
    with world(8, 5):
        mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("a", "b", "c"))
        assert list(mesh.get_coordinate()) == [1, 0, 1]
        t = torch.ones(1)
        dist.all_reduce(t, group=mesh["b"].get_group())
        assert t.item() == 2.0
        flat = mesh["a", "b"]._flatten("ab")
        assert flat.size() == 4
