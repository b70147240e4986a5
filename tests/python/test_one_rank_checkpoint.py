"""torch.distributed.checkpoint on every role: rank 17 of 512 is not the coordinator."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from one_rank_support import world
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Shard


def state() -> dict[str, object]:
    mesh = init_device_mesh("cpu", (512,))
    mine = torch.arange(3.0).view(1, 3) + 3 * dist.get_rank()
    return {"sharded": DTensor.from_local(mine, mesh, [Shard(0)]), "plain": torch.ones(4) * 7, "step": 12}


def empty() -> dict[str, object]:
    blank = state()
    blank["sharded"].to_local().zero_()  # type: ignore[attr-defined]
    return {**blank, "plain": torch.zeros(4), "step": 0}


@pytest.mark.parametrize("fill", ["uniform", "zeros", "nan"])
@pytest.mark.parametrize("rank", [0, 17])
def test_save_and_load(tmp_path: Path, rank: int, fill: str) -> None:
    with world(512, rank, fill):
        dcp.save(state(), checkpoint_id=tmp_path)
        assert sorted(p.name for p in tmp_path.iterdir()) == [".metadata", f"__{rank}_0.distcp"]
        loaded = empty()
        dcp.load(loaded, checkpoint_id=tmp_path)
        assert loaded["sharded"].to_local().tolist() == [[3.0 * rank, 3.0 * rank + 1, 3.0 * rank + 2]]  # type: ignore[attr-defined]
        assert loaded["plain"].tolist() == [7.0] * 4  # type: ignore[attr-defined]
        assert loaded["step"] == 12


def test_async_save(tmp_path: Path) -> None:
    with world(512, 17):
        dcp.async_save(state(), checkpoint_id=tmp_path).result()
        loaded = empty()
        dcp.load(loaded, checkpoint_id=tmp_path)
        assert loaded["plain"].tolist() == [7.0] * 4  # type: ignore[attr-defined]


def test_model_and_optimizer(tmp_path: Path) -> None:
    with world(8, 5):
        torch.manual_seed(0)
        model = fully_shard(nn.Linear(8, 16))
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        weights, moments = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=tmp_path)
        kept = model.weight.to_local().clone()
        with torch.no_grad():
            model.weight.to_local().zero_()
        weights, moments = get_state_dict(model, optimizer)
        dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=tmp_path)
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
        torch.testing.assert_close(model.weight.to_local(), kept)


def test_loads_what_one_process_saved(tmp_path: Path) -> None:
    full = torch.arange(512.0 * 3).view(512, 3)
    dcp.save({"sharded": full}, checkpoint_id=tmp_path)
    with world(512, 17):
        loaded = {"sharded": empty()["sharded"]}
        dcp.load(loaded, checkpoint_id=tmp_path)
        assert loaded["sharded"].to_local().tolist() == [[51.0, 52.0, 53.0]]  # type: ignore[attr-defined]


@pytest.mark.parametrize("to", [0, 1])
def test_zero_optimizer(to: int) -> None:
    with world(4, 1):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        optimizer.consolidate_state_dict(to=to)
        if to == 1:
            assert len(optimizer.state_dict()["state"]) == 1  # This rank's one parameter of four.
        dist.barrier()
