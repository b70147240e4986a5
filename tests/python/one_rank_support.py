"""What the tests of one-rank mode share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist
from allranks import one_rank


@contextmanager
def world(
    size: int, rank: int, fill: str = "uniform", backend: str | None = "gloo", profile: str | None = None
) -> Iterator[None]:
    """One rank of a world with an initialised default group; torch is as before afterwards."""
    one_rank.install(size, rank, fill, profile)
    try:
        dist.init_process_group(backend)
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        one_rank.uninstall()
