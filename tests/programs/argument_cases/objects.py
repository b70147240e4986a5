"""Operations on Python objects."""

import torch
import torch.distributed as dist


def things(rank):
    return {
        "int": rank,
        "none": None,
        "str": "x" * (rank + 1),
        "dict": {"rank": rank, "list": list(range(rank))},
        "tensor": torch.arange(rank + 1),
        "bytes": b"\0" * (100 * rank),
        "type": int,
        "function": len,
        "large": list(range(20_000)),
    }


def run(t):
    n, rank = t.world, t.rank
    last = n - 1
    for name, thing in things(rank).items():

        def brief(value):
            return [len(v) if isinstance(v, list) and len(v) > 99 else v for v in value]

        def all_gather(thing=thing):
            out = [None] * n
            return [dist.all_gather_object(out, thing), brief(out)]

        def gather(thing=thing):
            out = [None] * n if rank == last else None
            return [dist.gather_object(thing, out, last), brief(out or [])]

        def broadcast(thing=thing):
            out = [thing, rank]
            return [dist.broadcast_object_list(out, last), brief(out)]

        def scatter(thing=thing):
            out = ["before", "stays"]
            return [dist.scatter_object_list(out, [thing] * n if rank == 1 else None, 1), brief(out)]

        def send(thing=thing):
            out = [thing, 1] if rank == 0 else [None, None]
            if rank == 0:
                return dist.send_object_list(out, 1)
            return [dist.recv_object_list(out, 0), brief(out)] if rank == 1 else None

        for attempt in (all_gather, gather, broadcast, scatter, send):
            t(f"object/{attempt.__name__}/{name}", attempt)
    t("object/recv_any", lambda: dist.recv_object_list([None]))
    t("object/all_gather/long", lambda: dist.all_gather_object([None] * (n + 1), 1))
    t("object/all_gather/short", lambda: dist.all_gather_object([None] * (n - 1), 1))
    t("object/broadcast/none", lambda: dist.broadcast_object_list(None, 0))
    t("object/broadcast/root", lambda: dist.broadcast_object_list([1], n))
    t("object/broadcast/unpicklable", lambda: dist.broadcast_object_list([lambda: 1], rank))
    t("object/all_gather/unpicklable", lambda: dist.all_gather_object([None] * n, lambda: 1))
    t("object/gather/no_list", lambda: dist.gather_object(1, None, rank))
    t("object/scatter/empty", lambda: dist.scatter_object_list([], [1] * n, 0))
    t("object/send/self", lambda: dist.send_object_list([1], rank))
    t("object/recv/self", lambda: dist.recv_object_list([1], rank))
    t("object/broadcast/device", lambda: dist.broadcast_object_list([1], 0, device=torch.device("cpu")))
    group = dist.new_group([last, 0], sort_ranks=False)

    def in_group():
        if rank not in (0, last):
            return dist.all_gather_object([None], 1, group=group)
        out, got = [None] * 2, [rank]
        dist.all_gather_object(out, rank, group=group)
        dist.broadcast_object_list(got, group=group, group_src=1)
        return [out, got]

    t("object/group", in_group)
