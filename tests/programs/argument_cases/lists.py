"""Lists of tensors: lengths, contents, dtypes, aliases; and the coalescing manager."""

import torch
import torch.distributed as dist

from .collectives import OPS, filled


def lengths(t):
    n, rank = t.world, t.rank
    x = filled((2,), rank)

    def zeros(k, like=x):
        return [torch.zeros_like(like) for _ in range(k)]

    for k in (0, 1, n - 1, n + 1):
        t(f"all_gather/length/{k}", lambda k=k: dist.all_gather(zeros(k), x))
        t(f"reduce_scatter/length/{k}", lambda k=k: dist.reduce_scatter(torch.zeros(2), zeros(k)))
        t(f"all_to_all/length/{k}", lambda k=k: dist.all_to_all(zeros(k), zeros(k)))
        t(f"all_to_all/length_in/{k}", lambda k=k: dist.all_to_all(zeros(n), zeros(k)))
        t(f"all_gather_coalesced/length/{k}", lambda k=k: dist.all_gather_coalesced([zeros(1)] * k, [x]))
        t(f"all_gather_coalesced/inner/{k}", lambda k=k: dist.all_gather_coalesced([zeros(k)] * n, [x]))
        if k:
            t(f"all_reduce_coalesced/length/{k}", lambda k=k: dist.all_reduce_coalesced(zeros(k)))
    t("all_reduce_coalesced/length/0", lambda: dist.all_reduce_coalesced([]))
    t("all_gather/none", lambda: dist.all_gather(None, x))
    t("all_gather/tuple", lambda: dist.all_gather(tuple(zeros(n)), x))
    t("all_to_all/none", lambda: dist.all_to_all(None, None))
    t("reduce_scatter/none", lambda: dist.reduce_scatter(torch.zeros(2), None))
    t("all_gather/nested", lambda: dist.all_gather([zeros(n)], x))
    group = dist.new_group([rank], use_local_synchronization=True)
    for k in (0, 2):
        t(f"gather/alone/length/{k}", lambda k=k: dist.gather(x, zeros(k), rank, group=group))
        t(f"scatter/alone/length/{k}", lambda k=k: dist.scatter(x.clone(), zeros(k), rank, group=group))
    t("gather/alone/none", lambda: dist.gather(x, None, rank, group=group))
    t("scatter/alone/none", lambda: dist.scatter(x.clone(), None, rank, group=group))
    for what, wrong in {
        "shape": torch.zeros(3),
        "view": torch.zeros(2, 1),
        "dtype": torch.zeros(2, dtype=torch.int32),
        "int": 3,
        "none": None,
    }.items():
        mixed = [*zeros(n - 1), wrong]
        t(f"all_gather/one/{what}", lambda m=mixed: dist.all_gather(m, x))
        t(f"all_gather/all/{what}", lambda w=wrong: dist.all_gather([w] * n, x))
        t(f"reduce_scatter/all/{what}", lambda w=wrong: dist.reduce_scatter(torch.zeros(2), [w] * n))
        t(f"all_to_all/one/{what}", lambda m=mixed: dist.all_to_all(zeros(n), m))
        t(f"all_to_all/one_out/{what}", lambda m=mixed: dist.all_to_all(m, zeros(n)))
        t(f"all_reduce_coalesced/one/{what}", lambda m=mixed: dist.all_reduce_coalesced(m))
        t(f"gather/alone/{what}", lambda w=wrong: dist.gather(x, [w], rank, group=group))
        t(f"scatter/alone/{what}", lambda w=wrong: dist.scatter(x.clone(), [w], rank, group=group))
        t(f"all_gather_coalesced/one/{what}", lambda w=wrong: dist.all_gather_coalesced([[w]] * n, [x]))
        t(f"all_gather_single/alone/{what}", lambda w=wrong: dist.all_gather_into_tensor(w, x, group=group))

    def all_to_all(parts):
        out = [torch.zeros(len(p)) for p in parts]
        dist.all_to_all(out, parts)
        return out

    t("all_to_all/uneven", lambda: all_to_all([torch.ones((rank + i) % 3) * (10 * rank + i) for i in range(n)]))

    def two_dtypes():
        out = [torch.zeros(2, dtype=torch.float32 if i else torch.int32) for i in range(n)]
        dist.all_to_all(out, [torch.ones(2, dtype=torch.float32 if rank else torch.int32) for _ in range(n)])
        return out

    t("all_to_all/dtype_per_rank", two_dtypes)

    def same_input():
        out = zeros(n)
        dist.all_gather(out, out[rank].add_(rank))
        return out

    t("all_gather/input_is_output", same_input)

    def slices():
        room = torch.zeros(n, 2)
        dist.all_gather(list(room.unbind()), x)
        return room

    t("all_gather/slices", slices)

    def own_part():
        room = torch.zeros(n * 2)
        room[2 * rank : 2 * rank + 2] = x
        dist.all_gather_into_tensor(room, room[2 * rank : 2 * rank + 2])
        return room

    t("all_gather_single/in_place", own_part)

    def own_sum():
        room = filled((n * 2,), rank)
        out = room[2 * rank : 2 * rank + 2]
        dist.reduce_scatter_tensor(out, room)
        return out

    t("reduce_scatter_single/in_place", own_sum)

    def own_sum_list():
        parts = [filled((2,), rank + i) for i in range(n)]
        dist.reduce_scatter(parts[rank], parts)
        return parts

    t("reduce_scatter/in_place", own_sum_list)

    def exchange_in_place():
        parts = filled((n,), rank)
        dist.all_to_all_single(parts, parts.clone())
        return parts

    t("all_to_all_single/own_input", exchange_in_place)


def coalescing(t):
    n, rank = t.world, t.rank

    def manager(*ops, wait=True, **how):
        with dist._coalescing_manager(**how) as manager:
            for op in ops:
                op()
        if wait and how.get("async_ops"):
            manager.wait()
        return manager

    for asynchronous in (False, True):
        how = {"async_ops": asynchronous}
        tag = f"coalescing/{'async' if asynchronous else 'sync'}"
        for op in OPS:

            def reduce(op=op, how=how):
                xs = [filled((2,), rank), filled((3, 1), rank + 1)]
                manager(*(lambda x=x: dist.all_reduce(x, op=op) for x in xs), **how)
                return xs

            def scatter(op=op, how=how):
                outs = [torch.zeros(2), torch.zeros(1, 3)]
                ins = [filled((2 * n,), rank), filled((n, 3), rank)]
                pairs = list(zip(outs, ins))
                manager(*(lambda o=o, i=i: dist.reduce_scatter_tensor(o, i, op=op) for o, i in pairs), **how)
                return outs

            t(f"{tag}/all_reduce/{op.name}", reduce)
            t(f"{tag}/reduce_scatter/{op.name}", scatter)

        def gather(how=how):
            outs = [torch.zeros(2 * n), torch.zeros(n, 3)]
            ins = [filled((2,), rank), filled((1, 3), rank)]
            pairs = list(zip(outs, ins))
            manager(*(lambda o=o, i=i: dist.all_gather_into_tensor(o, i) for o, i in pairs), **how)
            return outs

        def inner(how=how):
            x = filled((2,), rank)
            with dist._coalescing_manager(**how) as m:
                work = dist.all_reduce(x, async_op=True)
            if how["async_ops"]:
                m.wait()
            return [work is None, type(work).__name__, x]

        def shapes(how=how):
            xs = [torch.ones(2), torch.ones(2, dtype=torch.int64)]
            manager(*(lambda x=x: dist.all_reduce(x) for x in xs), **how)
            return xs

        def mixed(how=how):
            x = torch.ones(2)
            ops = (lambda: dist.all_reduce(x), lambda: dist.all_gather_into_tensor(torch.zeros(2 * n), x))
            manager(*ops, **how)

        def empty(how=how):
            return [len(manager(**how).works)]

        def others(how=how):
            x, y = filled((2,), rank), filled((2,), rank)
            manager(lambda: dist.broadcast(x, 1), lambda: dist.barrier(), lambda: dist.broadcast(y, 0), **how)
            return [x, y]

        def messages(how=how):
            x, y = filled((2,), rank), torch.zeros(2)
            works = []

            def send():
                works.append(dist.isend(x, (rank + 1) % n))

            def receive():
                works.append(dist.irecv(y, (rank - 1) % n))

            manager(send, receive, **how)
            for work in works:
                work.wait()
            return y

        for attempt in (gather, inner, shapes, mixed, empty, others, messages):
            t(f"{tag}/{attempt.__name__}", attempt)
        for name in ("start_device", "p2p_device"):

            def with_device(name=name, how=how):
                x = filled((2,), rank)
                device = {"device": torch.device("cpu")}
                manager(lambda: dist.all_reduce(x) if name == "start_device" else dist.broadcast(x, 0), **how, **device)
                return x

            t(f"{tag}/{name}", with_device)
    with_different = [dist.ReduceOp.SUM, dist.ReduceOp.MAX]

    def different():
        xs = [filled((2,), rank), filled((2,), rank)]
        manager(*(lambda x=x, op=op: dist.all_reduce(x, op=op) for x, op in zip(xs, with_different)))
        return xs

    t("coalescing/different_ops", different)

    def nested():
        with dist._coalescing_manager():
            dist.all_reduce(torch.ones(1))
            with dist._coalescing_manager():
                pass

    t("coalescing/nested", nested)

    def works():
        m = manager(lambda: dist.all_reduce(torch.ones(2)), async_ops=True, wait=False)
        result = [len(m.works), *(type(w).__name__ == "Work" for w in m.works)]
        m.wait()
        return [*result, *(w.is_completed() for w in m.works)]

    t("coalescing/works", works)


def run(t):
    lengths(t)
    coalescing(t)
