"""No memory for weights: the meta device and FakeTensorMode, and c10d operations that torch has no Meta kernel for."""

from __future__ import annotations

import resource
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
import torch.distributed as dist
from one_rank_support import world
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed import distributed_c10d as c10d
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel as DDP

WIDTH, HIDDEN, LAYERS = 8192, 28672, 80


class Block(nn.Module):
    """About the size of one layer of a 70B Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH)
        self.q, self.o = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up = nn.Linear(WIDTH, HIDDEN, bias=False), nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = self.q(self.norm(x)).unflatten(-1, (-1, 128)).transpose(1, 2)
        a = nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
        x = x + self.o(a.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.silu(self.gate(x)) * self.up(x))


PLAN: dict[str, Any] = {
    "q": ColwiseParallel(),
    "o": RowwiseParallel(),
    "gate": ColwiseParallel(),
    "up": ColwiseParallel(),
    "down": RowwiseParallel(),
}


@pytest.mark.parametrize("where", ["fake", "meta"])
def test_a_model_of_70_billion(where: str) -> None:
    context: AbstractContextManager[Any] = FakeTensorMode() if where == "fake" else torch.device("meta")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with world(4096, 17):
        mesh = init_device_mesh("cpu", (512, 8), mesh_dim_names=("dp", "tp"))
        with context:
            model = nn.Sequential(nn.Embedding(32000, WIDTH), *[Block() for _ in range(LAYERS)])
            assert sum(p.numel() for p in model.parameters()) > 65e9
            for block in model[1:]:
                parallelize_module(block, mesh["tp"], PLAN)
                fully_shard(block, mesh=mesh["dp"])
            fully_shard(model, mesh=mesh["dp"])
            optimizer = torch.optim.AdamW(model.parameters())
            model(torch.randint(32000, (1, 64))).sum().backward()
            optimizer.step()
        local = model[1].up.weight.grad.to_local()
        assert local.shape == (HIDDEN // 8 // 512, WIDTH)
        assert isinstance(local, FakeTensor) if where == "fake" else local.is_meta
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024  # KiB


@pytest.mark.parametrize("where", ["fake", "meta"])
def test_kernels_that_torch_lacks(where: str) -> None:
    with world(4, 1), FakeTensorMode() if where == "fake" else torch.device("meta"):
        a, b = torch.ones(2), torch.ones(3)
        with c10d._coalescing_manager():
            dist.all_reduce(a)
            dist.all_reduce(b)
        with c10d._coalescing_manager(async_ops=True) as manager:
            dist.all_gather_into_tensor(torch.empty(8), a)
            dist.all_gather_into_tensor(torch.empty(12), b)
        manager.wait()
        with c10d._coalescing_manager():
            dist.reduce_scatter_tensor(a, torch.empty(8))
            dist.reduce_scatter_tensor(b, torch.empty(12))
        dist.all_gather_coalesced([[torch.empty(2), torch.empty(3)] for _ in range(4)], [a, b])
        out = [torch.empty(2) for _ in range(4)]
        dist.all_gather(out, a)
        dist.all_to_all_single(torch.empty(4), torch.ones(4))
        dist.broadcast(a, 0)
        dist.barrier()


def test_ddp_under_fake_tensor_mode() -> None:
    with world(64, 3), FakeTensorMode():
        model = DDP(nn.Linear(4, 2))
        model(torch.randn(5, 4)).sum().backward()
        assert isinstance(model.module.weight.grad, FakeTensor)
