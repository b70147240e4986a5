"""A world of 131,072 ranks, in seconds and little memory."""

from __future__ import annotations

import resource
import time

import torch
import torch.distributed as dist
from one_rank_support import world
from torch.distributed.device_mesh import init_device_mesh

SIZE, RANK = 131_072, 77_777


def test_131072_ranks() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.monotonic()
    with world(SIZE, RANK):
        mesh = init_device_mesh("cpu", (16384, 8), mesh_dim_names=("dp", "tp"))
        assert (mesh.get_local_rank("dp"), mesh.get_local_rank("tp")) == divmod(RANK, 8)
        assert mesh["dp"].get_group().size() == 16384
        cube = init_device_mesh("cpu", (128, 128, 8), mesh_dim_names=("pp", "dp", "tp"))
        assert list(cube.get_coordinate()) == [RANK // 1024, RANK // 8 % 128, RANK % 8]
        t = torch.ones(3)
        dist.all_reduce(t)
        assert t.tolist() == [float(SIZE)] * 3
        out = torch.empty(SIZE)
        dist.all_gather_into_tensor(out, t[:1])
        assert (out == SIZE).all()
        group = dist.new_group(list(range(1, SIZE, 2)))
        assert dist.get_rank(group) == RANK // 2
        things: list[object] = [None] * SIZE
        dist.all_gather_object(things, {"a": 1})
        assert things[-1] == {"a": 1}
        assert dist.get_global_rank(mesh["dp"].get_group(), 16383) == SIZE - 8 + RANK % 8
    assert time.monotonic() - start < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500 * 1024  # KiB
