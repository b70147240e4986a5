"""Object collectives on every role: every peer holds what this rank holds."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from one_rank_support import world

THING = {"a": [1, 2], "t": "x"}


@pytest.mark.parametrize("fill", ["uniform", "zeros", "nan"])
@pytest.mark.parametrize("rank", [0, 17])
def test_gathering(fill: str, rank: int) -> None:
    with world(64, rank, fill):
        out: list[object] = [None] * 64
        dist.all_gather_object(out, THING)
        assert out == [THING] * 64
        assert out[rank] is not THING
        gathered: list[object] | None = [None] * 64 if rank == 0 else None
        dist.gather_object(THING, gathered, dst=0)
        assert gathered == ([THING] * 64 if rank == 0 else None)
        with pytest.raises(ValueError, match="object_gather_list"):
            dist.gather_object(THING, None if rank == 0 else [None] * 64, dst=0)


@pytest.mark.parametrize("fill", ["uniform", "zeros", "nan"])
@pytest.mark.parametrize("rank", [0, 17])
def test_spreading(fill: str, rank: int) -> None:
    with world(64, rank, fill):
        things = [THING, 3, None]
        dist.broadcast_object_list(things, src=0)
        assert things == [THING, 3, None]
        out: list[object] = ["before"]
        dist.scatter_object_list(out, list(range(64)) if rank == 0 else None, src=0)
        assert out == ([0] if rank == 0 else ["before"])
        dist.scatter_object_list(out, list(range(64)), src=0)
        assert out == [rank]


def test_messages() -> None:
    with world(64, 17):
        things = [None]
        assert dist.recv_object_list(things, src=16) == 16
        assert things == [None]
        dist.send_object_list([THING], dst=18, device=torch.device("cpu"))
        assert dist.recv_object_list(things, src=16) == 16
        assert things == [THING]
        assert dist.recv_object_list(things) == 0


def test_sequence_numbers_count_them() -> None:
    with world(64, 17):
        group = dist.distributed_c10d._get_default_group()
        dist.all_gather_object([None] * 64, 1)
        dist.broadcast_object_list([1], src=0)
        assert group._get_sequence_number_for_group() == 4


def test_in_a_subgroup() -> None:
    with world(64, 17):
        group = dist.new_group([3, 17])
        out: list[object] = [None, None]
        dist.all_gather_object(out, THING, group=group)
        assert out == [THING, THING]
        dist.broadcast_object_list([1], group_src=0, group=group)
