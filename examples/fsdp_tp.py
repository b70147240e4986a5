"""FSDP2 and tensor parallelism on a small transformer.

The mesh is (data, tensor) = (world / 2, 2): weights are split over pairs of ranks (tensor parallel), and each half is
sharded over the rest (FSDP2). Nothing here knows of allranks. It runs under torchrun as well:

    torchrun --nproc-per-node 4 examples/fsdp_tp.py                   4 processes, gloo
    allranks run -n 4 examples/fsdp_tp.py                             4 ranks in one process
    allranks run -n 512 --rank 17 examples/fsdp_tp.py --speaker 17    rank 17 of 512, nothing communicated
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Attention(nn.Module):
    """Causal self-attention whose heads are split over the tensor-parallel ranks."""

    def __init__(self, width: int, head: int) -> None:
        super().__init__()
        self.head = head
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        # -1 heads: a rank sees its own share of them only.
        q, k, v = (proj(x).view(batch, length, -1, self.head).transpose(1, 2) for proj in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    def __init__(self, width: int, head: int) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, head)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x))))


class Transformer(nn.Module):
    def __init__(self, vocabulary: int, width: int, head: int, layers: int, length: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, head) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.logits = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.logits(self.norm(x))


PLAN = {
    "attention.q": ColwiseParallel(),
    "attention.k": ColwiseParallel(),
    "attention.v": ColwiseParallel(),
    "attention.out": RowwiseParallel(),
    "up": ColwiseParallel(),
    "down": RowwiseParallel(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--batch", type=int, default=4, help="sequences a data-parallel rank and step")
    parser.add_argument("--speaker", type=int, default=0, metavar="RANK", help="the rank that prints")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    world = dist.get_world_size()
    if world % 2:
        raise SystemExit(f"an even number of ranks is needed, not {world}")
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("data", "tensor"))
    data, tensor = mesh["data"], mesh["tensor"]

    torch.manual_seed(0)  # equal weights everywhere
    vocabulary = 128
    model = Transformer(vocabulary, args.width, head=16, layers=args.layers, length=args.length)
    for block in model.blocks:
        parallelize_module(block, tensor, PLAN)
        fully_shard(block, mesh=data)
    fully_shard(model, mesh=data)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def say(text: str) -> None:
        if dist.get_rank() == args.speaker:
            print(text, flush=True)

    shards = sum(p.to_local().numel() if isinstance(p, DTensor) else p.numel() for p in model.parameters())
    total = sum(p.numel() for p in model.parameters())
    say(f"mesh {world // 2} x 2, {total:,} parameters, {shards:,} of them on rank {dist.get_rank()}")

    torch.manual_seed(1 + data.get_local_rank())  # tensor-parallel ranks of a pair read the same data
    for step in range(args.steps):
        start = torch.randint(vocabulary, (args.batch, 1))
        tokens = (start + 7 * torch.arange(args.length + 1)) % vocabulary  # the next token is this one plus 7
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.SUM)
        say(f"step {step} loss {mean.item() / world:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
