"""DDP waits in C++, in the backward pass, where no rank can hand over: a rank that never comes must be found before."""

from __future__ import annotations

from typing import Any

import allranks
import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.oldest


class Fails(torch.autograd.Function):
    """Raises in the backward pass of rank 1."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        if dist.get_rank() == 1:
            raise ValueError("in backward")
        return gradient


def model(hook: bool) -> DistributedDataParallel:
    dist.init_process_group("gloo")
    made = DistributedDataParallel(torch.nn.Linear(4, 4))
    if hook:
        made.register_comm_hook(None, allreduce_hook)
    return made


def skips(hook: bool) -> None:
    made = model(hook)
    if dist.get_rank() != 2:
        made(torch.ones(2, 4)).sum().backward()


def raises(hook: bool) -> None:
    Fails.apply(model(hook)(torch.ones(2, 4))).sum().backward()


@pytest.mark.parametrize("clock", ["real", "virtual"])
@pytest.mark.parametrize("hook", [False, True], ids=["reducer", "hook"])
def test_a_rank_that_skips_it(hook: bool, clock: str) -> None:
    with pytest.raises(allranks.RankFailed, match=r"missing-participant.*rank 2 ended without it"):
        allranks.run(skips, 4, args=(hook,), clock=clock)


@pytest.mark.parametrize("clock", ["real", "virtual"])
@pytest.mark.parametrize("hook", [False, True], ids=["reducer", "hook"])
def test_a_rank_that_raises_in_it(hook: bool, clock: str) -> None:
    with pytest.raises(allranks.RankFailed) as caught:
        allranks.run(raises, 4, args=(hook,), clock=clock)
    assert "rank 1 failed: ValueError: in backward" in str(caught.value)
