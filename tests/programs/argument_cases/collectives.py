"""Every collective on tensors: shapes, dtypes, roots, ops, counts."""

import torch
import torch.distributed as dist

DTYPES = (
    "float64 float32 float16 bfloat16 complex128 complex64 complex32 int64 int32 int16 int8 uint64 uint32 uint16 "
    "uint8 bool float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu"
).split()
OPS = [getattr(dist.ReduceOp, name) for name in "SUM AVG PRODUCT MIN MAX BAND BOR BXOR".split()]
SHAPES = [(), (0,), (1,), (3,), (0, 2), (2, 0), (2, 3), (1, 2, 1, 2, 1)]


def filled(shape, rank, dtype=torch.float32):
    numbers = torch.arange(1, 1 + max(1, torch.Size(shape).numel()), dtype=torch.float32) + 10 * rank
    return numbers[: torch.Size(shape).numel()].reshape(shape).to(dtype)


def all_reduce(t, x, **how):
    work = dist.all_reduce(x, **how)
    return [work, x]


def moving(t, kind, shape, dtype=torch.float32, root=1):
    """One operation of each kind on tensors of a shape; the result on the ranks that have one."""
    rank, world = t.rank, t.world
    x = filled(shape, rank, dtype)
    if kind == "all_reduce":
        dist.all_reduce(x)
        return x
    if kind == "all_reduce_coalesced":
        xs = [x, filled(shape, rank + 1, dtype)]
        dist.all_reduce_coalesced(xs)
        return xs
    if kind == "reduce":
        dist.reduce(x, root)
        return x if rank == root else None
    if kind == "broadcast":
        dist.broadcast(x, root)
        return x
    if kind == "all_gather":
        out = [torch.zeros_like(x) for _ in range(world)]
        dist.all_gather(out, x)
        return out
    if kind == "all_gather_coalesced":
        out = [[torch.zeros_like(x)] * 1 + [torch.zeros_like(x)] for _ in range(world)]
        dist.all_gather_coalesced(out, [x, filled(shape, rank + 1, dtype)])
        return out
    if kind == "gather":
        out = [torch.zeros_like(x) for _ in range(world)] if rank == root else None
        dist.gather(x, out, root)
        return out
    if kind == "scatter":
        parts = [filled(shape, 5 + i, dtype) for i in range(world)] if rank == root else None
        dist.scatter(x, parts, root)
        return x
    if kind == "reduce_scatter":
        dist.reduce_scatter(x, [filled(shape, rank + i, dtype) for i in range(world)])
        return x
    if kind == "all_to_all":
        out = [torch.zeros_like(x) for _ in range(world)]
        dist.all_to_all(out, [filled(shape, 10 * rank + i, dtype) for i in range(world)])
        return out
    parts = [shape[0] * world, *shape[1:]] if shape else [world]
    if kind == "all_gather_single":
        out = torch.zeros(parts, dtype=dtype)
        dist.all_gather_into_tensor(out, x)
        return out
    if kind == "reduce_scatter_single":
        dist.reduce_scatter_tensor(x, filled(parts, rank, dtype))
        return x
    if kind == "all_to_all_single":
        out = torch.zeros(parts, dtype=dtype)
        dist.all_to_all_single(out, filled(parts, rank, dtype))
        return out
    if kind == "send_recv":
        works = [dist.isend(x.clone(), (rank + 1) % world), dist.irecv(x, (rank - 1) % world)]
        for work in works:
            work.wait()
        return x
    raise AssertionError(kind)


KINDS = (
    "all_reduce all_reduce_coalesced reduce broadcast all_gather all_gather_coalesced gather scatter reduce_scatter "
    "all_to_all all_gather_single reduce_scatter_single all_to_all_single send_recv"
).split()
# gloo reads the first size of a tensor that has none.
NO_SCALARS = ("reduce_scatter", "reduce_scatter_single")


def single_layouts(t):
    """Output layouts of the operations on one big tensor: (output, input) shapes."""
    n = t.world
    for out, inp in [
        ((n * 2,), (2,)),
        ((n, 2), (2,)),
        ((n * 2, 3), (2, 3)),
        ((n, 2, 3), (2, 3)),
        ((n * 6,), (2, 3)),
        ((2, n * 3), (2, 3)),
        ((n * 2 + 1,), (2,)),
        ((n * 2 - 1,), (2,)),
        ((2,), (2,)),
        ((n + 1, 2), (2,)),
        ((n,), ()),
        ((n, 1), ()),
        ((), ()),
        ((0,), (0,)),
        ((n * 2,), (2, 1)),
        ((n, 1), (1,)),
        ((n,), (1, 1)),
        ((n * 2, 1), (2,)),
    ]:

        def gather(out=out, inp=inp):
            o = torch.zeros(out)
            dist.all_gather_into_tensor(o, filled(inp, t.rank))
            return o

        def scatter(out=out, inp=inp):
            o = torch.zeros(inp)
            dist.reduce_scatter_tensor(o, filled(out, t.rank))
            return o

        def gather_coalesced(out=out, inp=inp):
            o = torch.zeros(out)
            with dist._coalescing_manager():
                dist.all_gather_into_tensor(o, filled(inp, t.rank))
            return o

        t(f"all_gather_single/{out}<-{inp}", gather)
        if out and len(torch.zeros(out).chunk(n)) == n:  # gloo reads beyond the end of a shorter list.
            t(f"coalesced_all_gather_single/{out}<-{inp}", gather_coalesced)
        if 0 < len(inp) <= len(out):
            t(f"reduce_scatter_single/{inp}<-{out}", scatter)


def splits(t):
    n, rank = t.world, t.rank
    for name, shape, ins, outs in [
        ("none", (2 * n,), None, None),
        ("indivisible", (2 * n + 1,), None, None),
        ("equal", (2 * n,), [2] * n, [2] * n),
        ("zeros", (0,), [0] * n, [0] * n),
        ("short", (2 * n,), [2] * (n - 1), [2] * (n - 1)),
        ("long", (2 * n,), [2] * (n + 1), [2] * (n + 1)),
        ("sum_small", (2 * n,), [1] * n, [1] * n),
        ("sum_large", (2 * n,), [3] * n, [3] * n),
        ("negative", (2 * n,), [-1, 5] + [2] * (n - 2), [-1, 5] + [2] * (n - 2)),
        ("empty_lists", (2 * n,), [], []),
        ("only_in", (2 * n,), [2] * n, None),
        ("tuple", (2 * n,), (2,) * n, (2,) * n),
        ("tensor", (2 * n,), torch.full((n,), 2), torch.full((n,), 2)),
        ("floats", (2 * n,), [2.0] * n, [2.0] * n),
        ("rows", (2 * n, 3), [2] * n, [2] * n),
        ("rows_none", (n, 0), None, None),
        ("scalar", (), None, None),
        ("scalar_splits", (), [1] * n, [1] * n),
    ]:

        def attempt(shape=shape, ins=ins, outs=outs):
            out = torch.zeros(shape)
            work = dist.all_to_all_single(out, filled(shape, rank), outs, ins)
            return [work, out]

        t(f"all_to_all_single/splits/{name}", attempt)

    def uneven():
        ins, outs = [(rank + i) % 3 for i in range(n)], [(rank + i) % 3 for i in range(n)]
        out = torch.zeros(sum(outs), 2)
        dist.all_to_all_single(out, filled((sum(ins), 2), rank), outs, ins)
        return out

    t("all_to_all_single/splits/uneven", uneven)

    def other_shape():
        out = torch.zeros(2, n)
        dist.all_to_all_single(out, filled((n, 2), rank))
        return out

    t("all_to_all_single/other_shape", other_shape)

    def other_rank():
        out = torch.zeros(2 * n)
        dist.all_to_all_single(out, filled((n, 2), rank))
        return out

    t("all_to_all_single/other_rank", other_rank)

    def other_dtype():
        out = torch.zeros(n, dtype=torch.int32)
        dist.all_to_all_single(out, filled((n,), rank))
        return out

    t("all_to_all_single/other_dtype", other_dtype)


def run(t):
    for kind in KINDS:
        for shape in SHAPES:
            if shape or kind not in NO_SCALARS:
                t(f"{kind}/shape/{shape}", lambda kind=kind, shape=shape: moving(t, kind, shape))
        for dtype in DTYPES:
            t(f"{kind}/dtype/{dtype}", lambda k=kind, d=dtype: moving(t, k, (2,), getattr(torch, d)))
        if kind in ("reduce", "broadcast", "gather", "scatter"):
            # With None, the ranks would not know who has to bring the list.
            none = () if kind in ("gather", "scatter") else (None,)
            for root in (-1, -t.world, t.world, 99, 1.0, "0", True, 2**31, 2**40, *none):
                t(f"{kind}/root/{root!r}", lambda k=kind, r=root: moving(t, k, (2,), root=r))
    for op in [*OPS, dist.ReduceOp.PREMUL_SUM, dist._make_nccl_premul_sum(2.0)]:
        for dtype in (torch.float32, torch.int32, torch.bool, torch.complex64):
            name = f"{op.op.name if hasattr(op, 'op') else op.name}/{dtype}"
            x = filled((2,), t.rank, dtype)
            t(f"all_reduce/op/{name}", lambda x=x, op=op: all_reduce(t, x, op=op))
    for op in (0, "sum", None, 3.0, dist.ReduceOp(dist.ReduceOp.MAX), torch.add):
        t(
            f"all_reduce/op/{op if not callable(op) else 'function'}".split(" at ")[0],
            lambda op=op: all_reduce(t, filled((2,), t.rank), op=op),
        )
    for wrong in (None, 3, [1.0, 2.0], [torch.ones(2)], "x", torch.ones(2).numpy()):
        name = type(wrong).__name__
        t(f"all_reduce/wrong/{name}", lambda w=wrong: all_reduce(t, w))
        t(f"broadcast/wrong/{name}", lambda w=wrong: dist.broadcast(w, 0))
        t(f"all_gather/wrong/{name}", lambda w=wrong: dist.all_gather(w, w))
        t(f"all_gather_single/wrong/{name}", lambda w=wrong: dist.all_gather_into_tensor(w, w))
        t(f"reduce_scatter_single/wrong/{name}", lambda w=wrong: dist.reduce_scatter_tensor(w, w))
        t(f"all_to_all_single/wrong/{name}", lambda w=wrong: dist.all_to_all_single(w, w))
        t(f"scatter/wrong/{name}", lambda w=wrong: dist.scatter(w, None, 0))
        t(f"gather/wrong/{name}", lambda w=wrong: dist.gather(w, None, 0))
        t(f"reduce/wrong/{name}", lambda w=wrong: dist.reduce(w, 0))
    for kind in ("all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single"):
        a, b = torch.zeros(2 * t.world), torch.zeros(2 * t.world, dtype=torch.int64)
        small, little = a[:2].clone(), b[:2].clone()
        pairs = {"all_gather_into_tensor": (a, little), "reduce_scatter_tensor": (small, b)}.get(kind, (a, b))
        t(f"{kind}/mixed_dtypes", lambda k=kind, p=pairs: getattr(dist, k)(*p))
    t("barrier", dist.barrier)
    t("barrier/device_ids", lambda: dist.barrier(device_ids=[0]))
    t("barrier/device_ids_wrong", lambda: dist.barrier(device_ids=0))
    t("monitored_barrier", dist.monitored_barrier)
    t("monitored_barrier/all", lambda: dist.monitored_barrier(wait_all_ranks=True))
    single_layouts(t)
    splits(t)
