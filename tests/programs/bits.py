"""Print a hash of what every operation leaves, one line per rank and case: the bits to compare between two runs.

    torchrun --standalone --nproc-per-node 3 tests/programs/bits.py [PART ...]

PART selects cases whose key contains it: `all_reduce`, `bfloat16`, `reduce_scatter_tensor/sum`; none selects all.
A line is `rank R: KEY SHA1` or `rank R: KEY raised ExceptionType`. Inputs are seeded counters, so the output depends
on the world size and the backend's arithmetic only. Of a reduce, gather and scatter only the ranks that end with a
result print one. Sizes: empty, one, fewer than ranks, about the ranks, odd, and large enough for several blocks.
"""

import hashlib
import sys
import warnings

warnings.filterwarnings("ignore")
import torch
import torch.distributed as dist

FLOATS = ["float64", "float32", "float16", "bfloat16"]
COMPLEX = ["complex128", "complex64", "complex32"]
INTS = ["int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"]
FP8 = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
DTYPES = FLOATS + COMPLEX + INTS + FP8
OPS = ["sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum"]


def words(seed, n):
    """`n` pseudo-random int64: counters through a multiplicative mixer."""
    z = torch.arange(1, n + 1, dtype=torch.int64) * -7046029254386353131 + seed * 2654435761
    z = (z ^ (z >> 30 & 0x3FFFFFFFF)) * -4658895280553007687
    z = (z ^ (z >> 27 & 0x1FFFFFFFFF)) * -7723592293110705685
    return z ^ (z >> 31 & 0x1FFFFFFFF)


def make(dtype, seed, n):
    """Values of very different magnitude and both signs; bits as they come for the types that cannot compute."""
    dt = getattr(torch, dtype)
    if n == 0:
        return torch.empty(0, dtype=dt)
    if dt.is_complex:
        part = {"complex128": "float64", "complex64": "float32", "complex32": "float16"}[dtype]
        return torch.view_as_complex(make(part, seed, 2 * n).view(n, 2))
    w = words(seed, n)
    if dtype == "bool":
        return (w & 1).to(torch.bool)
    if dtype in FLOATS:
        spread = 6 if dtype == "float16" else 30
        sign = 1 - 2 * (w & 1).double()
        fraction = 1 + (w >> 1 & 0xFFFFFFFF).double() / 2**32
        power = torch.pow(2.0, (w >> 33 & 0xFFFF).double() % (2 * spread + 1) - spread)
        return (sign * fraction * power).to(dt)
    size = dt.itemsize
    return w.view(torch.uint8).view(n, 8)[:, :size].contiguous().view(dt).view(n)


def digest(tensors):
    h = hashlib.sha1()
    for t in tensors:
        if t.numel():
            h.update(t.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return h.hexdigest()


def reduce_op(name):
    return dist._make_nccl_premul_sum(0.5) if name == "premul_sum" else getattr(dist.ReduceOp, name.upper())


def reducing(kind, dtype, op, n, rank, world):
    """The tensors that this rank ends with; None where there is nothing to compare."""

    def t(m, which=0):
        return make(dtype, 1000 * n + 100 * which + rank, m)

    op = reduce_op(op)
    if kind == "all_reduce":
        x = t(n)
        dist.all_reduce(x, op=op)
        return [x]
    if kind == "all_reduce_async":
        x, y = t(n), t(n + 1, 1)
        works = [dist.all_reduce(x, op=op, async_op=True), dist.all_reduce(y, op=op, async_op=True)]
        for work in works:
            work.wait()
        return [x, y]
    if kind == "all_reduce_coalesced":
        xs = [t(n, 0), t(5, 1), t(n + 1, 2)]
        dist.all_reduce_coalesced(xs, op=op)
        return xs
    if kind.startswith("reduce_to_"):
        root = 0 if kind == "reduce_to_first" else world - 1
        x = t(n)
        dist.reduce(x, root, op=op)
        return [x] if rank == root else None
    if kind == "reduce_scatter":
        out = t(n, 9)
        dist.reduce_scatter(out, [t(n, i) for i in range(world)], op=op)
        return [out]
    if kind == "reduce_scatter_tensor":
        out = t(n, 9)
        dist.reduce_scatter_tensor(out, t(n * world), op=op)
        return [out]
    if kind == "reduce_scatter_coalesced":
        outs = [t(n, 8), t(n + 1, 9)]
        with dist._coalescing_manager(async_ops=True) as work:
            dist.reduce_scatter_tensor(outs[0], t(n * world, 0), op=op)
            dist.reduce_scatter_tensor(outs[1], t((n + 1) * world, 1), op=op)
        work.wait()
        return outs
    if kind == "all_reduce_sparse":
        # Most places belong to all ranks: their sum has an order.
        index = torch.arange(rank, rank + n).view(1, -1)
        x = torch.sparse_coo_tensor(index, t(n), (n + world,))
        dist.all_reduce(x, op=op)
        x = x.coalesce()
        return [x.indices(), x.values()]
    raise AssertionError(kind)


def moving(kind, dtype, n, rank, world):
    """As `reducing`, for the operations that move data."""

    def t(m, which=0):
        return make(dtype, 1000 * n + 100 * which + rank, m)

    def room(m):
        return make(dtype, 77, m)

    if kind == "broadcast":
        x = t(n)
        dist.broadcast(x, world - 1)
        return [x]
    if kind == "all_gather":
        out = [room(n) for _ in range(world)]
        dist.all_gather(out, t(n))
        return out
    if kind == "all_gather_into_tensor":
        out = room(n * world)
        dist.all_gather_into_tensor(out, t(n))
        return [out]
    if kind == "all_gather_coalesced":
        out = [[room(n), room(n + 1)] for _ in range(world)]
        dist.all_gather_coalesced(out, [t(n), t(n + 1, 1)])
        return [x for each in out for x in each]
    if kind == "gather":
        out = [room(n) for _ in range(world)] if rank == world - 1 else None
        dist.gather(t(n), out, world - 1)
        return out
    if kind == "scatter":
        out = room(n)
        dist.scatter(out, [t(n, i) for i in range(world)] if rank == 0 else None, 0)
        return [out]
    if kind == "all_to_all":
        # Of equal lengths: gloo takes no others.
        out = [room(n) for _ in range(world)]
        dist.all_to_all(out, [t(n, i) for i in range(world)])
        return out
    if kind == "all_to_all_single":
        out = room(n * world)
        dist.all_to_all_single(out, t(n * world))
        return [out]
    if kind == "send_recv":
        out = room(n)
        if world == 1:
            return None
        peers = [dist.isend(t(n), (rank + 1) % world), dist.irecv(out, (rank - 1) % world)]
        for work in peers:
            work.wait()
        return [out]
    raise AssertionError(kind)


REDUCING = (
    "all_reduce all_reduce_async all_reduce_coalesced reduce_to_first reduce_to_last reduce_scatter "
    "reduce_scatter_tensor reduce_scatter_coalesced"
).split()
MOVING = (
    "broadcast all_gather all_gather_into_tensor all_gather_coalesced gather scatter all_to_all all_to_all_single "
    "send_recv"
).split()


def cases(world):
    sizes = sorted({0, 1, 2, world - 1, world, world + 1, 2 * world + 1, 1023})
    for kind in REDUCING:
        for dtype in DTYPES:
            for op in OPS:
                # One refusal says it all; sizes matter where there is a result.
                for n in sizes if dtype in FLOATS or (dtype in COMPLEX[:2] and op == "sum") else [world + 1]:
                    yield f"{kind}/{op}/{dtype}/{n}", reducing, (kind, dtype, op, n)
    for kind in ["all_reduce", "reduce_to_last", "reduce_scatter_tensor"]:
        for dtype in ["float32", "bfloat16"]:
            for n in [65_537, 300_007]:
                yield f"{kind}/sum/{dtype}/{n}", reducing, (kind, dtype, "sum", n)
    for dtype in DTYPES:
        for op in ["sum", "max"]:
            yield f"all_reduce_sparse/{op}/{dtype}/7", reducing, ("all_reduce_sparse", dtype, op, 7)
    yield "all_reduce_sparse/sum/float32/1023", reducing, ("all_reduce_sparse", "float32", "sum", 1023)
    for kind in MOVING:
        for dtype in DTYPES:
            for n in [1, 7]:
                yield f"{kind}/-/{dtype}/{n}", moving, (kind, dtype, n)
        yield f"{kind}/-/float32/300007", moving, (kind, "float32", 300_007)


def main():
    parts = sys.argv[1:]
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    for key, run, args in cases(world):
        if parts and not any(part in key for part in parts):
            continue
        try:
            result = run(*args, rank, world)
            text = None if result is None else digest(result)
        except Exception as e:
            dist.distributed_c10d._world.pg_coalesce_state.clear()
            text = f"raised {type(e).__name__}"
        if text is not None:
            sys.stdout.write(f"rank {rank}: {key} {text}\n")
            sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
