"""The tensors of random programs: what they hold follows from a few numbers.

`made(rank, dtype, shape, key, slot)` is a tensor of step `key`; `slot` tells the tensors of a step apart. Elements come
from counters through a mixer of 64 bits. Floats have both signs and very different magnitudes; integers use all bits.
`odd=True` puts infinities, NaN, negative zero, denormals and extremes between them.

Layouts: `offset` is a slice of something larger, `transposed` has its dimensions in reverse order in memory, `gaps` is
every second element, `expanded` has one row for all.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import torch

SEED = 0
_REAL = {torch.complex128: torch.float64, torch.complex64: torch.float32, torch.complex32: torch.float16}
_SPREAD = {torch.float64: 30, torch.float32: 30, torch.bfloat16: 30, torch.float16: 6}
_MASK = (1 << 64) - 1


def _signed(value: int) -> int:
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def words(seed: int, n: int) -> torch.Tensor:
    """`n` pseudo-random int64."""
    z = torch.arange(1, n + 1, dtype=torch.int64) * -7046029254386353131 + _signed(seed * 0x9E6C63D0876A9A47)
    z = (z ^ (z >> 30 & 0x3FFFFFFFF)) * -4658895280553007687
    z = (z ^ (z >> 27 & 0x1FFFFFFFFF)) * -7723592293110705685
    return z ^ (z >> 31 & 0x1FFFFFFFF)


def elements(dtype: torch.dtype, n: int, seed: int, odd: bool) -> torch.Tensor:
    """`n` elements in a row."""
    if dtype in _REAL:
        return torch.view_as_complex(elements(_REAL[dtype], 2 * n, seed, odd).view(n, 2))
    w = words(seed, n)
    if dtype is torch.bool:
        return (w & 1).to(torch.bool)
    if dtype not in _SPREAD:
        return w.view(torch.uint8).view(n, 8)[:, : dtype.itemsize].contiguous().view(dtype).view(n)
    spread = _SPREAD[dtype]
    sign = 1 - 2 * (w & 1).double()
    fraction = 1 + (w >> 1 & 0xFFFFFFFF).double() / 2**32
    power = torch.pow(2.0, (w >> 33 & 0xFFFF).double() % (2 * spread + 1) - spread)
    x = (sign * fraction * power).to(dtype)
    if odd:
        info = torch.finfo(dtype)
        special = [math.inf, -math.inf, math.nan, -0.0, info.smallest_normal / 4, info.max, info.min, 0.0]
        choice = torch.tensor(special, dtype=torch.float64).to(dtype)[w >> 50 & 7]
        x = torch.where((w >> 56 & 3) == 0, choice, x)
    return x


def lay(shape: tuple[int, ...], layout: str) -> tuple[int, tuple[int, ...], int]:
    """Elements of memory, strides and the first element of a tensor."""
    inner = shape
    if layout == "expanded" and shape:
        inner = shape[1:]
    order = range(len(inner)) if layout == "transposed" else reversed(range(len(inner)))
    step = 2 if layout == "gaps" else 1
    strides = [0] * len(inner)
    for dim in order:
        strides[dim] = step
        step *= max(1, inner[dim])
    offset = 3 if layout == "offset" else 0
    if layout == "expanded" and shape:
        strides = [0, *strides]
    return step + offset + (2 if layout == "offset" else 0), tuple(strides), offset


def made(
    rank: int, dtype: str, shape: tuple[int, ...], key: int, slot: int, layout: str = "plain", odd: bool = False
) -> torch.Tensor:
    """The tensor `slot` of step `key` on a rank."""
    size, strides, offset = lay(shape, layout)
    seed = (((SEED * 64 + rank) * 1024 + key) * 4096) + slot
    return elements(getattr(torch, dtype), size, seed, odd).as_strided(shape, strides, offset)


def fed(source: torch.Tensor, dtype: str, shape: tuple[int, ...], layout: str = "plain") -> torch.Tensor:
    """A tensor whose memory is that of `source`, repeated."""
    size, strides, offset = lay(shape, layout)
    element = getattr(torch, dtype)
    taken = memory(source)
    if not taken.numel():
        taken = torch.zeros(1, dtype=torch.uint8)
    wanted = size * element.itemsize
    taken = taken.repeat(-(-wanted // taken.numel()))[:wanted]
    if element is torch.bool:
        return (taken & 1).to(torch.bool).as_strided(shape, strides, offset)
    return taken.view(element).as_strided(shape, strides, offset)


def scarce(rank: int, dtype: str, shape: tuple[int, ...], key: int, odd: bool = False) -> torch.Tensor:
    """A sparse tensor: rows of which some are there, some of them twice."""
    there = 1 + (key + rank) % 3
    rows = shape[0]
    values = made(rank, dtype, (there, *shape[1:]), key, 0, odd=odd)
    index = (words(key * 64 + rank, there) & 0xFFFF) % max(1, rows)
    if not rows:
        index, values = index[:0], values[:0]
    return torch.sparse_coo_tensor(index.view(1, -1), values, shape)


def thing(rank: int, key: int, slot: int) -> Any:
    """An object."""
    n = int(words(key * 4096 + slot * 64 + rank, 1)[0]) & 0xFFFF
    return [
        n,
        "x" * (n % 300),
        {"rank": rank, "list": list(range(n % 7))},
        None,
        (n / 7, float(n) * 1e300),
        b"\0" * (n % 4000),
        {n: [{str(n): (None, True)}]},
    ][n % 7]


def memory(x: torch.Tensor) -> torch.Tensor:
    """All bytes behind a tensor, whether or not it shows them."""
    return torch.empty(0, dtype=torch.uint8).set_(x.untyped_storage())  # type: ignore[call-overload]


def mark(x: Any) -> str:
    """Type, shape, strides and a hash of the memory; the memory itself if it is small."""
    if not isinstance(x, torch.Tensor):
        text = repr(x)
        return text if len(text) < 80 else f"{text[:40]}... {hashlib.sha1(text.encode()).hexdigest()}"
    if x.layout is torch.sparse_coo:
        x = x.coalesce()
        # Of its own memory, since a sparse tensor may keep more than it shows.
        return (
            f"sparse {tuple(x.shape)} {mark(x.indices().reshape(-1).clone())} {mark(x.values().contiguous().clone())}"
        )
    data = memory(x).numpy().tobytes()
    text = data.hex() if len(data) <= 64 else hashlib.sha1(data).hexdigest()
    return f"{str(x.dtype)[6:]} {tuple(x.shape)} {x.stride()} {text}"


def listed(results: Any) -> list[Any]:
    """A result, a list of results, or a list of lists, as one list."""
    return [x for each in results for x in listed(each)] if isinstance(results, list) else [results]


def spoil(x: Any) -> None:
    """Flips a bit of a result, to see that it is noticed."""
    if isinstance(x, torch.Tensor):
        bits = memory(x.coalesce().values() if x.layout is torch.sparse_coo else x)
        if bits.numel():
            bits[0] ^= 1
