"""Speed of one-rank mode against torch's own `fake` backend, in one process, interleaved: medians of ratios.

    python scripts/bench_one_rank.py [--rounds N]

Prints one line a measure: name, torch fake, ours, ratio, limit. Exit status 1 if a limit is exceeded.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from allranks import one_rank
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

WORLD, RANK = 8, 3


@dataclass
class Measure:
    """One comparison."""

    name: str
    limit: float
    fake: float
    ours: float
    ratio: float


class Side:
    """A default group of one of the two backends, made and destroyed again, so that both live in one process."""

    def __init__(self, ours: bool) -> None:
        self._ours = ours

    def __enter__(self) -> None:
        if self._ours:
            one_rank.install(WORLD, RANK)
            dist.init_process_group("gloo")
        else:
            dist.init_process_group("fake", rank=RANK, world_size=WORLD, store=dist.HashStore())

    def __exit__(self, *_: object) -> None:
        dist.destroy_process_group()
        if self._ours:
            one_rank.uninstall()


def per_call(body: Callable[[], object], calls: int) -> float:
    """Seconds a call."""
    start = time.perf_counter()
    for _ in range(calls):
        body()
    return (time.perf_counter() - start) / calls


def all_reduce(record: bool) -> Callable[[bool], float]:
    """`dist.all_reduce` of one element on the default group."""

    def measure(ours: bool) -> float:
        with Side(ours):
            if ours and record:
                one_rank.record(10_000)
            t = torch.zeros(1)
            per_call(lambda: dist.all_reduce(t), 500)
            return per_call(lambda: dist.all_reduce(t), 5_000)

    return measure


def training_step(ours: bool) -> float:
    """FSDP2 and tensor parallel on a 2 x 4 mesh: forward, backward, optimizer."""
    with Side(ours):
        torch.manual_seed(0)
        mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
        blocks = [nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(4)]
        for block in blocks:
            parallelize_module(block, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
            fully_shard(block, mesh=mesh["dp"])
        model = fully_shard(nn.Sequential(*blocks), mesh=mesh["dp"])
        optimizer = torch.optim.AdamW(model.parameters())
        x = torch.randn(64, 256)

        def step() -> None:
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        per_call(step, 3)
        return per_call(step, 10)


def compare(name: str, limit: float, measure: Callable[[bool], float], rounds: int) -> Measure:
    """A, B, A, B, ...; the ratio is the median of the ratios of neighbours."""
    pairs = [(measure(False), measure(True)) for _ in range(rounds)]
    ratio = statistics.median(ours / fake for fake, ours in pairs)
    return Measure(name, limit, statistics.median(f for f, _ in pairs), statistics.median(o for _, o in pairs), ratio)


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    measures = [
        compare("all_reduce of one element", 2.2, all_reduce(record=False), rounds),
        compare("the same with operations recorded", 2.6, all_reduce(record=True), rounds),
        compare("FSDP2 + TP training step", 1.03, training_step, rounds),
    ]
    for m in measures:
        times = f"fake {m.fake * 1e6:10.2f} us   ours {m.ours * 1e6:10.2f} us"
        print(f"{m.name:36} {times}   {m.ratio:5.2f}x  <= {m.limit}x")
    return int(any(m.ratio > m.limit for m in measures))


if __name__ == "__main__":
    sys.exit(main())
