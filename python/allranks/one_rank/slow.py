"""Steps of an operation carried out by torch operations: for tensors that are not dense CPU memory.

What a step means is decided in Rust (`crates/engine/src/fake/plan.rs`); here it is only done: on the tensor's device,
on its current stream, without autograd, and never on a tensor that has no data (meta).
"""

from __future__ import annotations

import torch

Part = tuple[bool, int, int, int]
Step = tuple[str, Part, Part | None]
How = tuple[str, float, int, str]

_BITWISE = {"band": torch.bitwise_and, "bor": torch.bitwise_or, "bxor": torch.bitwise_xor}


def run(steps: list[Step], outs: list[torch.Tensor], ins: list[torch.Tensor], how: How) -> None:
    """Carries out `steps`; `how` is (reduce op, its factor, group size, fill rule)."""
    tensors = outs + ins
    if any(t.is_meta for t in tensors):
        return
    if any(_is_freed(t) for t in tensors):
        raise RuntimeError("a tensor without memory: its storage was freed")
    with torch.no_grad():
        if any(t.layout is not torch.strided for t in outs):
            for t in outs:
                _reduce_sparse(t, how)
            return
        _run_strided(steps, outs, ins, how)


def _is_freed(t: torch.Tensor) -> bool:
    plain = t.layout is torch.strided and t.is_cpu and type(t) in (torch.Tensor, torch.nn.Parameter)
    return plain and t.numel() > 0 and t.untyped_storage().nbytes() == 0


def _run_strided(steps: list[Step], outs: list[torch.Tensor], ins: list[torch.Tensor], how: How) -> None:
    flat_outs = [t.detach().contiguous().view(-1) for t in outs]
    flat_ins = [t.detach().contiguous().view(-1) for t in ins]

    def part(p: Part) -> torch.Tensor:
        is_input, tensor, start, length = p
        return (flat_ins if is_input else flat_outs)[tensor][start : start + length]

    for what, to, source in steps:
        target = part(to)
        if what == "copy":
            assert source is not None
            _repeat(target, part(source))
        elif what == "peer":
            _peer(target, how[3])
        else:
            target.copy_(reduced(target, how))
    for t, flat in zip(outs, flat_outs, strict=True):
        if flat.data_ptr() != t.data_ptr() or not t.is_contiguous():
            t.detach().copy_(flat.view(t.shape))


def _repeat(target: torch.Tensor, source: torch.Tensor) -> None:
    count, length = target.numel(), source.numel()
    if count == 0:
        return
    if length == 0:
        target.zero_()
    elif count == length:
        target.copy_(source)
    else:
        target.copy_(source.repeat(-(-count // length))[:count])


def _peer(target: torch.Tensor, fill: str) -> None:
    if fill == "nan" and (target.is_floating_point() or target.is_complex()):
        target.fill_(torch.nan)
    else:
        target.zero_()


def reduced(x: torch.Tensor, how: How) -> torch.Tensor:
    """`x` combined with what the peers hold: the table of `crates/engine/src/fake/combine.rs`."""
    op, factor, size, fill = how
    if x.is_complex() and op not in ("sum", "avg", "premul_sum"):
        raise RuntimeError(f"all_reduce does not support {op} on complex tensors")
    if fill == "uniform" or size == 1:
        match op:
            case "sum":
                return x if x.dtype is torch.bool else _scaled(x, size)
            case "premul_sum":
                return _scaled(x, size * factor)
            case "product":
                return x if x.dtype is torch.bool else torch.pow(x, size)
            case "bxor":
                return torch.zeros_like(x) if size % 2 == 0 else x
        return x
    if fill == "nan" and (x.is_floating_point() or x.is_complex()):
        return torch.full_like(x, torch.nan)
    zeros = torch.zeros_like(x)
    match op:
        case "premul_sum":
            return _scaled(x, factor)
        case "avg":
            return x / size if x.is_floating_point() or x.is_complex() else torch.div(x, size, rounding_mode="trunc")
        case "product" | "band":
            return zeros
        case "min":
            return torch.minimum(x, zeros)
        case "max":
            return torch.maximum(x, zeros)
    return x


def _scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    # Small floats have no multiplication of their own.
    wide = x.float() if x.is_floating_point() and x.itemsize == 1 else x
    return (wide * factor).to(x.dtype)


def _reduce_sparse(t: torch.Tensor, how: How) -> None:
    """all_reduce of a sparse COO tensor: its values are reduced, and it is coalesced afterwards, as with gloo."""
    if t.layout is not torch.sparse_coo:
        raise RuntimeError(f"all_reduce of layout {t.layout} is not supported")
    if how[0] not in ("sum", "avg"):
        raise RuntimeError(f"all_reduce of sparse tensors supports sum only, not {how[0]}")
    dense = t.coalesce()
    values = reduced(dense.values(), how)
    result = torch.sparse_coo_tensor(dense.indices(), values, t.shape, is_coalesced=True, check_invariants=False)
    t.copy_(result)
