"""Functional collectives, those of autograd, and torch.distributed.nn."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.nn.functional as nn_functional

from .collectives import filled


def pure(t):
    n, rank = t.world, t.rank
    x = filled((n * 2, 3), rank)
    world = dist.group.WORLD
    for shape in ((), (0,), (3,), (n, 2)):
        y = filled(shape, rank)
        for op in "sum avg product min max band bor bxor premul nonsense SUM".split():
            t(f"funcol/all_reduce/{shape}/{op}", lambda y=y, op=op: funcol.all_reduce(y, op, world))
        t(f"funcol/all_gather/{shape}", lambda y=y: funcol.all_gather_tensor(y, 0, world))
        t(f"funcol/broadcast/{shape}", lambda y=y: funcol.broadcast(y, 1, world))
        t(f"funcol/coalesced/{shape}", lambda y=y: funcol.all_reduce_coalesced([y, y + 1], "sum", world))
        t(f"funcol/gather_coalesced/{shape}", lambda y=y: funcol.all_gather_into_tensor_coalesced([y, y + 1], world))
    for dim in (0, 1, -1, 2):
        t(f"funcol/all_gather/dim{dim}", lambda d=dim: funcol.all_gather_tensor(x, d, world))
    for dim in (0, -2):
        for op in ("sum", "avg", "max"):
            t(
                f"funcol/reduce_scatter/dim{dim}/{op}",
                lambda d=dim, op=op: funcol.reduce_scatter_tensor(x, op, d, world),
            )
    t("funcol/reduce_scatter/dim1", lambda: funcol.reduce_scatter_tensor(x.t().contiguous(), "sum", 1, world))
    t("funcol/reduce_scatter/strided", lambda: funcol.reduce_scatter_tensor(x.t(), "sum", 1, world))
    t("funcol/reduce_scatter/odd", lambda: funcol.reduce_scatter_tensor(filled((n * 2 + 1,), rank), "sum", 0, world))
    t(
        "funcol/reduce_scatter/coalesced",
        lambda: funcol.reduce_scatter_tensor_coalesced([x, x + 1], "sum", [0, 0], world),
    )
    t("funcol/all_to_all/none", lambda: funcol.all_to_all_single(x, None, None, world))
    t("funcol/all_to_all/splits", lambda: funcol.all_to_all_single(x, [2] * n, [2] * n, world))
    uneven = [(rank + i) % 3 for i in range(n)]
    t("funcol/all_to_all/uneven", lambda: funcol.all_to_all_single(filled((sum(uneven),), rank), uneven, uneven, world))
    t("funcol/all_to_all/wrong", lambda: funcol.all_to_all_single(x, [1] * n, [1] * n, world))
    t("funcol/wait", lambda: funcol.wait_tensor(torch.ones(2)))
    t("funcol/permute", lambda: funcol.permute_tensor(filled((3,), rank), [(r + 1) % n for r in range(n)], world))
    ranks = list(range(n))
    half = [[r] for r in ranks]
    t("funcol/group/list", lambda: funcol.all_reduce(x, "sum", ranks))
    t("funcol/group/lists", lambda: funcol.all_reduce(x, "sum", [ranks]))
    t("funcol/group/alone", lambda: funcol.all_reduce(x, "sum", half))
    t("funcol/group/name", lambda: funcol.all_reduce(x, "sum", world.group_name))
    t("funcol/group/nonsense", lambda: funcol.all_reduce(x, "sum", "no such group"))
    t("funcol/group/none", lambda: funcol.all_reduce(x, "sum", None))
    for dtype in (torch.complex64, torch.bool, torch.int16, torch.bfloat16):
        y = filled((2,), rank, dtype)
        t(f"funcol/dtype/{dtype}", lambda y=y: funcol.all_reduce(y, "sum", world))
        t(f"funcol/gather_dtype/{dtype}", lambda y=y: funcol.all_gather_tensor(y, 0, world))
        t(f"funcol/gathers_dtype/{dtype}", lambda y=y: funcol.all_gather_into_tensor_coalesced([y, y], world))
        z = filled((2 * n,), rank, dtype)
        t(f"funcol/all_to_all_dtype/{dtype}", lambda z=z: funcol.all_to_all_single(z, None, None, world))

    def raw():
        y = torch.ops._c10d_functional.all_reduce(filled((2,), rank), "sum", world.group_name)
        return torch.ops._c10d_functional.wait_tensor(y)

    def raw_in_place():
        y = filled((2,), rank)
        z = torch.ops._c10d_functional.all_reduce_(y, "sum", world.group_name)
        torch.ops._c10d_functional.wait_tensor(z)
        return [y, z]

    t("funcol/raw", raw)
    t("funcol/raw_in_place", raw_in_place)
    t("funcol/keeps_input", lambda: [funcol.all_reduce(y := filled((2,), rank), "sum", world), y][::-1])


def with_gradients(t):
    n, rank = t.world, t.rank
    world = dist.group.WORLD

    def graded(f, shape=(n * 2, 3)):
        x = filled(shape, rank).requires_grad_()
        y = f(x)
        ys = y if isinstance(y, (tuple, list)) else [y]
        weights = [torch.arange(1.0, 1 + v.numel()).reshape(v.shape) * (rank + 1) for v in ys]
        sum((v * w).sum() for v, w in zip(ys, weights)).backward()
        return [*ys, x.grad]

    pairs = {
        "all_gather": lambda x: funcol.all_gather_tensor_autograd(x, 0, world),
        "reduce_scatter": lambda x: funcol.reduce_scatter_tensor_autograd(x, "sum", 0, world),
        "reduce_scatter_avg": lambda x: funcol.reduce_scatter_tensor_autograd(x, "avg", 0, world),
        "all_to_all": lambda x: funcol.all_to_all_single_autograd(x, [2] * n, [2] * n, world),
        "all_reduce": lambda x: funcol.all_reduce(x, "sum", world),
        "nn/all_reduce": lambda x: nn_functional.all_reduce(x),
        "nn/all_reduce_max": lambda x: nn_functional.all_reduce(x, op=dist.ReduceOp.MAX),
        "nn/all_gather": lambda x: nn_functional.all_gather(x),
        "nn/_all_gather_base": lambda x: nn_functional._all_gather_base(x.new_zeros(n * n * 2, 3), x),
        "nn/broadcast": lambda x: nn_functional.broadcast(x, 1),
        "nn/gather": lambda x: nn_functional.gather(x, 1),
        "nn/scatter": lambda x: nn_functional.scatter([x * (i + 1) for i in range(n)], 1),
        "nn/reduce": lambda x: nn_functional.reduce(x, 1),
        "nn/reduce_scatter": lambda x: nn_functional.reduce_scatter(torch.zeros(2, 3), list(x.chunk(n))),
        "nn/all_to_all": lambda x: nn_functional.all_to_all([torch.zeros(2, 3) for _ in range(n)], list(x.chunk(n))),
        "nn/all_to_all_single": lambda x: nn_functional.all_to_all_single(torch.zeros(n * 2, 3), x),
    }
    for name, f in pairs.items():
        if name != "nn/reduce":
            t(f"grad/{name}", lambda f=f: graded(f))


def run(t):
    pure(t)
    with_gradients(t)
