"""A pipeline stage without neighbours: first, middle and last of eight."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from allranks import one_rank
from one_rank_support import world
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)

CPU = torch.device("cpu")


def block() -> nn.Sequential:
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))


def step(schedule: Any, rank: int) -> None:
    if rank == 0:
        schedule.step(torch.randn(32, 16))
    elif rank == 7:
        schedule.step(target=torch.randn(32, 16), losses=[])
    else:
        schedule.step()


@pytest.mark.parametrize("rank", [0, 3, 7])
@pytest.mark.parametrize("kind", [ScheduleGPipe, Schedule1F1B])
def test_one_stage_a_rank(kind: Any, rank: int, capfd: pytest.CaptureFixture[str]) -> None:
    with world(8, rank):
        module = block()
        schedule = kind(PipelineStage(module, rank, 8, CPU), n_microbatches=8, loss_fn=nn.functional.mse_loss)
        for _ in range(2):
            step(schedule, rank)
        assert module[0].weight.grad.shape == (32, 16)
        assert ("nobody sends the shape" in capfd.readouterr().err) == (rank != 0)


@pytest.mark.parametrize("rank", [0, 3, 7])
def test_interleaved(rank: int) -> None:
    with world(8, rank):
        modules = [block(), block()]
        stages = [PipelineStage(m, rank + 8 * i, 16, CPU) for i, m in enumerate(modules)]
        schedule = ScheduleInterleaved1F1B(stages, n_microbatches=8, loss_fn=nn.functional.mse_loss)
        step(schedule, rank)
        assert all(m[0].weight.grad is not None for m in modules)


def test_the_program_says_what_comes(capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[torch.Size] = []

    class Probe(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(x.shape)
            return super().forward(x)

    with world(8, 3):
        one_rank.pipeline_input(torch.empty(4, 16))
        schedule = ScheduleGPipe(PipelineStage(Probe(16, 16), 3, 8, CPU), 8, loss_fn=nn.functional.mse_loss)
        schedule.step()
        assert set(seen) == {torch.Size([4, 16])}
        seen.clear()
        example = torch.ones(5, 16, requires_grad=True)
        stage = PipelineStage(Probe(16, 16), 3, 8, CPU, input_args=example, output_args=example)
        ScheduleGPipe(stage, 8, loss_fn=nn.functional.mse_loss).step()
        assert set(seen) == {torch.Size([5, 16])}
        assert "nobody sends" not in capfd.readouterr().err


def test_other_layers() -> None:
    with world(8, 3):
        layers = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        ScheduleGPipe(PipelineStage(layers, 3, 8, CPU), 8, loss_fn=nn.functional.mse_loss).step()
        assert layers.linear1.weight.grad is not None
        convolution = nn.Conv2d(3, 3, 3, padding=1)
        ScheduleGPipe(PipelineStage(convolution, 3, 8, CPU), 8, loss_fn=nn.functional.mse_loss).step()
        assert convolution.weight.grad is not None


def test_nothing_tells(capfd: pytest.CaptureFixture[str]) -> None:
    class Odd(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a + b

    with world(8, 3), pytest.raises(RuntimeError, match="pipeline_input"):
        ScheduleGPipe(PipelineStage(Odd(), 3, 8, CPU), 8, loss_fn=nn.functional.mse_loss).step()
