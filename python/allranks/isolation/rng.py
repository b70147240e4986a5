"""Generators of random numbers: Python's, numpy's global one, torch's.

Python's and numpy's lie in memory as arrays of the Mersenne twister; their state is copied as bytes once a check at the
start has shown that the layout is the expected one (else through the slow public functions). Ranks begin with different
states, as processes do, but with the same ones in every run.
"""

from __future__ import annotations

import ctypes
import random
import struct
from typing import Any

from allranks.isolation.registry import Registry

_WORDS = 625


def install(registry: Registry) -> None:
    """Private: `random`, `numpy.random` once imported, torch's default generators."""
    _python(registry)
    registry.on_import("numpy.random.mtrand", lambda module: _numpy(registry, module))
    registry.on_import("torch.random", lambda module: _torch(registry, module.default_generator))
    registry.on_import("torch.cuda.random", lambda module: _cuda(registry))


def seed_of(registry: Registry, rank: int) -> int:
    """A seed for what a program never seeds: of the run's seed and the rank."""
    return (registry.seed * 1_000_003 + rank * 7919 + 12345) % 2**32


def _python(registry: Registry) -> None:
    generator = random._inst  # type: ignore[attr-defined]
    offset = _python_offset()
    if offset is None:
        registry.call(random.getstate, random.setstate, key="random")
    else:
        registry.memory(generator, [(id(generator) + offset, 4 * _WORDS)])
        registry.attribute(generator, "gauss_next")
    registry.at_rank_start.append(lambda rank: random.seed(seed_of(registry, rank)))


def _python_offset() -> int | None:
    """Where index and words begin in the object, seen on one that is made for it."""
    probe = random.Random(20_240_817)
    words = probe.getstate()[1]
    expected = struct.pack(f"{_WORDS}I", words[-1], *words[:-1])
    size = random.Random.__basicsize__
    try:
        offset = ctypes.string_at(id(probe), size).find(expected)
    except Exception:
        return None
    return offset if offset > 0 and offset + len(expected) <= size else None


def _numpy(registry: Registry, mtrand: Any) -> None:
    generator = mtrand._rand
    slot = None
    ranges = _numpy_ranges(generator, mtrand.RandomState)
    if ranges is None:
        registry.call(mtrand.get_state, mtrand.set_state, key="numpy.random")
    else:
        slot = registry.memory(generator, ranges)
    from allranks._allranks import current_rank

    if current_rank() is None:
        registry.at_rank_start.append(lambda rank: mtrand.seed(seed_of(registry, rank)))
    elif slot is not None:  # A rank imported it in the middle of the run: all ranks differ from now on.
        mine = current_rank()
        for rank in [*(r for r in range(registry.world_size) if r != mine), mine]:
            assert rank is not None
            mtrand.seed(seed_of(registry, rank))
            if rank != mine:
                registry.swapper.set_bytes(slot, rank, registry.swapper.current(slot))


def _numpy_ranges(generator: Any, make: Any) -> list[tuple[int, int]] | None:
    """The twister's words and position, and the kept second normal number with its flag."""
    try:
        probe = make(4711)
        kind, words, position, _, _ = probe.get_state()
        expected = struct.pack(f"{_WORDS - 1}Ii", *words, position)
        address = probe._bit_generator.ctypes.state_address
        if kind != "MT19937" or ctypes.string_at(address, len(expected)) != expected:
            return None
        probe.standard_normal()
        has, gauss = probe.get_state()[3:]
        size = type(probe).__basicsize__
        offset = ctypes.string_at(id(probe), size).find(struct.pack("d", gauss))
        if has != 1 or offset < 8 or struct.unpack("i", ctypes.string_at(id(probe) + offset - 8, 4)) != (1,):
            return None
        state = generator._bit_generator.ctypes.state_address
        if generator.get_state()[0] != "MT19937" or type(generator) is not type(probe):
            return None
        return [(state, len(expected)), (id(generator) + offset - 8, 16)]
    except Exception:
        return None


def _torch(registry: Registry, generator: Any) -> None:
    registry.call(generator.get_state, generator.set_state, key="torch cpu generator")


def _cuda(registry: Registry) -> None:
    """The generators of GPUs, once CUDA is in use: a run that never touches a GPU pays nothing."""
    import torch

    if not torch.backends.cuda.is_built():
        return
    import torch.cuda

    def add() -> None:
        for generator in torch.cuda.default_generators:
            registry.call(generator.get_state, generator.set_state, key=("cuda generator", id(generator)))

    def make(original: Any) -> Any:
        def lazy_init() -> None:
            fresh = not torch.cuda.is_initialized()
            original()
            if fresh:
                add()

        return lazy_init

    registry.patches.wrap(torch.cuda, "_lazy_init", make)
    if torch.cuda.is_initialized():
        add()
