"""Tensors that are not plain: every layout in every position of every operation.

Left out: memory with gaps, or shared by elements, where gloo takes it for dense and touches its neighbours.
"""

import torch
import torch.distributed as dist

SHAPE = (6, 2)  # As many rows as 2 and 3 ranks can share.


def base(rank, dtype=torch.float32):
    return torch.arange(12, dtype=torch.float32).reshape(SHAPE).to(dtype) + (10 * rank + 1)


def room_with(x, step):
    """Like `x`, every `step`-th column of a larger tensor."""
    room = torch.zeros(x.shape[0], x.shape[1] * step, dtype=x.dtype)
    room[:, ::step] = x
    return room[:, ::step]


def leaf(x):
    return x.clone().requires_grad_()


def in_inference(x):
    with torch.inference_mode():
        return x.clone()


class Sub(torch.Tensor):
    """A subclass without behaviour of its own."""


DENSE = {
    "plain": lambda x: x.clone(),
    "transposed": lambda x: x.t().contiguous().t(),
    "slice": lambda x: torch.cat([torch.zeros(3), x.reshape(-1), torch.zeros(3)])[3:15].view(SHAPE),
    "leaf": leaf,
    "not_leaf": lambda x: leaf(x) * 1,
    "view_of_leaf": lambda x: leaf(x).view(SHAPE),
    "slice_of_leaf": lambda x: leaf(torch.cat([x, x]))[:6],
    "parameter": lambda x: torch.nn.Parameter(x.clone()),
    "inference": in_inference,
    "subclass": lambda x: x.clone().as_subclass(Sub),
    "detached": lambda x: leaf(x).detach(),
    "conj": lambda x: torch.complex(x, x + 1).conj(),
    "complex": lambda x: torch.complex(x, x + 1),
    "complex_transposed": lambda x: torch.complex(x, x + 1).t().contiguous().t(),
    "neg": lambda x: torch.complex(x, x + 1).conj().imag.contiguous(),
    "sparse": lambda x: x.to_sparse(),
    "csr": lambda x: x.to_sparse_csr(),
}
GAPS = {
    "gaps": lambda x: room_with(x, 2),
    "expanded": lambda x: x[:1].expand(SHAPE),
    "neg_view": lambda x: torch.complex(x, x + 1).conj().imag,
    "real_view": lambda x: torch.complex(x, x + 1).real,
    "flipped": lambda x: x.flip(0),
}


def attempt(t, kind, make, out_make):
    """Input and output of these makes."""
    rank, n = t.rank, t.world
    x = make(base(rank))
    zero = torch.zeros(SHAPE, dtype=torch.float32)

    def out():
        return out_make(zero)

    if kind == "all_reduce":
        dist.all_reduce(x)
        return x
    if kind == "all_reduce_coalesced":
        xs = [x, make(base(rank + 1))]
        dist.all_reduce_coalesced(xs)
        return xs
    if kind == "reduce":
        dist.reduce(x, 0)
        return x if rank == 0 else None
    if kind == "broadcast":
        dist.broadcast(x, 1)
        return x
    if kind == "all_gather":
        outs = [out() for _ in range(n)]
        dist.all_gather(outs, x)
        return outs
    if kind == "all_gather_coalesced":
        outs = [[out(), out()] for _ in range(n)]
        dist.all_gather_coalesced(outs, [x, make(base(rank + 1))])
        return outs
    if kind == "gather":
        outs = [out() for _ in range(n)] if rank == 0 else None
        dist.gather(x, outs, 0)
        return outs
    if kind == "scatter":
        o = out()
        dist.scatter(o, [make(base(i)) for i in range(n)] if rank == 0 else None, 0)
        return o
    if kind == "reduce_scatter":
        o = out()
        dist.reduce_scatter(o, [make(base(rank + i)) for i in range(n)])
        return o
    if kind == "all_to_all":
        outs = [out() for _ in range(n)]
        dist.all_to_all(outs, [make(base(10 * rank + i)) for i in range(n)])
        return outs
    if kind == "all_to_all_single":
        o = out()
        dist.all_to_all_single(o, x)
        return o
    if kind == "send_recv":
        o = out()
        # What may be refused comes first, so that nothing is left behind.
        first, second = lambda: dist.isend(x, (rank + 1) % n), lambda: dist.irecv(o, (rank - 1) % n)
        if make is DENSE["plain"]:
            first, second = second, first
        for work in [first(), second()]:
            work.wait()
        return o
    raise AssertionError(kind)


IN_PLACE = ("all_reduce", "all_reduce_coalesced", "reduce", "broadcast")
OTHERS = (
    "all_gather all_gather_coalesced gather scatter reduce_scatter all_to_all all_to_all_single send_recv"
).split()
# gloo reads what lies behind the tensor's address, gaps or not.
RAW_INPUT = ("gather", "scatter", "all_to_all_single", "reduce_scatter")
RAW_OUTPUT = ("scatter", "all_to_all_single", "reduce_scatter")


def big(t, kind, order):
    """The operations on one big tensor, with the memory of both sides transposed or with gaps."""
    n = t.world
    parts, whole = SHAPE, (SHAPE[0] * n, SHAPE[1])
    small = base(t.rank)
    large = torch.arange(12.0 * n).reshape(whole) + 10 * t.rank

    def laid(x):
        if order == "transposed":
            return x.t().contiguous().t()
        if order == "gaps":
            return room_with(x, 2)
        if order == "conj":
            return torch.complex(x, x).conj()
        return x.clone().requires_grad_()

    if kind == "all_gather_single":
        out = laid(torch.zeros(whole))
        dist.all_gather_into_tensor(out, laid(small))
    else:
        out = laid(torch.zeros(parts))
        dist.reduce_scatter_tensor(out, laid(large))
    return out


def images(t):
    """Four dimensions, channels last."""
    n, rank = t.world, t.rank
    x = (torch.arange(16.0).reshape(1, 2, 2, 4) + rank).to(memory_format=torch.channels_last)

    def reduce():
        y = x.clone(memory_format=torch.preserve_format)
        dist.all_reduce(y)
        return [y, y.is_contiguous(memory_format=torch.channels_last)]

    def broadcast():
        y = x.clone(memory_format=torch.preserve_format)
        dist.broadcast(y, 1)
        return y

    def gather():
        out = [torch.zeros_like(x) for _ in range(n)]
        dist.all_gather(out, x)
        return out

    def gather_plain():
        out = [torch.zeros(1, 2, 2, 4) for _ in range(n)]
        dist.all_gather(out, x)
        return out

    def permuted():
        y = (torch.arange(24.0).reshape(1, 2, 3, 2, 2) + rank).permute(4, 2, 0, 3, 1)
        dist.all_reduce(y)
        return y

    for attempt in (reduce, broadcast, gather, gather_plain, permuted):
        t(f"channels_last/{attempt.__name__}", attempt)


def gradients(t):
    """What autograd sees of an operation in place."""
    rank = t.rank

    def through(kind):
        x = leaf(base(rank))
        y = x * 2
        version = y._version
        dist.all_reduce(y) if kind == "all_reduce" else dist.broadcast(y, 0)
        y.sum().backward()
        return [x.grad, y._version - version, y.is_leaf]

    def used_after():
        x = leaf(base(rank))
        y = x.exp()
        dist.all_reduce(y)
        y.sum().backward()
        return x.grad

    def output_of_gather():
        x = leaf(base(rank))
        outs = [torch.zeros(SHAPE) for _ in range(t.world)]
        dist.all_gather(outs, x)
        return [outs[0].requires_grad, outs[0].grad_fn is None]

    for kind in ("all_reduce", "broadcast"):
        t(f"autograd/{kind}", lambda kind=kind: through(kind))
    t("autograd/exp", used_after)
    t("autograd/all_gather", output_of_gather)

    def sparse_leaf():
        x = base(rank).to_sparse().requires_grad_()
        dist.all_reduce(x)
        return x

    def averaged(kind):
        x = leaf(base(rank))
        y = x * 2
        if kind == "all_reduce":
            dist.all_reduce(y, op=dist.ReduceOp.AVG)
        elif kind == "reduce":
            dist.reduce(y, 0, op=dist.ReduceOp.AVG)
        else:
            dist.reduce_scatter_tensor(out := torch.zeros(SHAPE), y.repeat(t.world, 1), op=dist.ReduceOp.AVG)
            y = out
        y.sum().backward()
        return x.grad

    t("autograd/sparse_leaf", sparse_leaf)
    for kind in ("all_reduce", "reduce", "reduce_scatter"):
        t(f"autograd/average/{kind}", lambda kind=kind: averaged(kind))

    def average_of_leaf():
        x = leaf(base(rank))
        dist.all_reduce(x, op=dist.ReduceOp.AVG)
        return x

    def average_of_ints(kind):
        x = torch.ones(2, dtype=torch.int32)
        try:
            if kind == "all_reduce":
                dist.all_reduce(x, op=dist.ReduceOp.AVG)
            elif kind == "reduce_scatter_single":
                dist.reduce_scatter_tensor(x, x.repeat(t.world), op=dist.ReduceOp.AVG)
            else:
                dist.all_reduce_coalesced([x, x.clone()], op=dist.ReduceOp.AVG)
        except RuntimeError:
            return ["refused", x]
        return x

    t("autograd/average_of_leaf", average_of_leaf)
    for kind in ("all_reduce", "reduce_scatter_single", "all_reduce_coalesced"):
        t(f"average_of_ints/{kind}", lambda kind=kind: average_of_ints(kind))

    def versions():
        x, y = torch.zeros(2), torch.zeros(2)
        before = [x._version, y._version]
        dist.all_reduce(x)
        dist.all_gather_into_tensor(torch.zeros(2 * t.world), x)
        dist.reduce_scatter_tensor(y, torch.zeros(2 * t.world))
        return [x._version - before[0], y._version - before[1]]

    t("autograd/versions", versions)
    with torch.inference_mode():
        for kind in IN_PLACE:
            t(f"inference_mode/{kind}", lambda kind=kind: attempt(t, kind, DENSE["plain"], DENSE["plain"]))
    with torch.no_grad():
        for kind in IN_PLACE:
            t(f"no_grad/{kind}", lambda kind=kind: attempt(t, kind, leaf, leaf))


def run(t):
    plain = DENSE["plain"]
    for name, make in DENSE.items():
        for kind in IN_PLACE:
            t(f"{kind}/layout/{name}", lambda k=kind, m=make: attempt(t, k, m, m))
        # Only the root would refuse some.
        for kind in [k for k in OTHERS if name not in ("sparse", "csr") or k not in ("gather", "scatter")]:
            t(f"{kind}/layout/{name}", lambda k=kind, m=make: attempt(t, k, m, m))
            # gloo adds elements that do not belong together when the parts of a reduce_scatter lie differently.
            if "complex" not in name and name != "conj" and (kind, name) != ("reduce_scatter", "transposed"):
                t(f"{kind}/layout_in/{name}", lambda k=kind, m=make: attempt(t, k, m, plain))
                t(f"{kind}/layout_out/{name}", lambda k=kind, m=make: attempt(t, k, plain, m))
    for name, make in GAPS.items():
        for kind in OTHERS:
            if kind not in RAW_INPUT:
                t(f"{kind}/layout_in/{name}", lambda k=kind, m=make: attempt(t, k, m, plain))
            if kind not in RAW_OUTPUT and name != "expanded":
                t(f"{kind}/layout_out/{name}", lambda k=kind, m=make: attempt(t, k, plain, m))
    for kind in ("all_gather_single", "reduce_scatter_single"):
        for order in ("transposed", "gaps", "conj", "leaf"):
            t(f"{kind}/layout/{order}", lambda k=kind, o=order: big(t, k, o))
    images(t)
    gradients(t)
