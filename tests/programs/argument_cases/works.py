"""Handles of asynchronous operations, and what synchronous ones return."""

from datetime import timedelta

import torch
import torch.distributed as dist


def operations(t):
    """Each kind as a function of `async_op`, with the tensors that it writes."""
    n, rank = t.world, t.rank
    x = torch.ones(2) * (rank + 1)

    def all_reduce(how):
        return dist.all_reduce(x.clone(), **how)

    def all_reduce_coalesced(how):
        return dist.all_reduce_coalesced([x.clone(), x.clone()], **how)

    def broadcast(how):
        return dist.broadcast(x.clone(), 0, **how)

    def reduce(how):
        return dist.reduce(torch.ones(2), 0, op=dist.ReduceOp.MAX, **how)

    def all_gather(how):
        return dist.all_gather([torch.zeros(2) for _ in range(n)], x, **how)

    def all_gather_single(how):
        return dist.all_gather_into_tensor(torch.zeros(2 * n), x, **how)

    def all_gather_coalesced(how):
        return dist.all_gather_coalesced([[torch.zeros(2)] for _ in range(n)], [x], **how)

    def gather(how):
        return dist.gather(x, [torch.zeros(2) for _ in range(n)] if rank == 0 else None, 0, **how)

    def scatter(how):
        return dist.scatter(x.clone(), [x] * n if rank == 0 else None, 0, **how)

    def reduce_scatter(how):
        return dist.reduce_scatter(torch.zeros(2), [x] * n, **how)

    def reduce_scatter_single(how):
        return dist.reduce_scatter_tensor(torch.zeros(2), x.repeat(n), **how)

    def all_to_all(how):
        return dist.all_to_all([torch.zeros(2) for _ in range(n)], [x] * n, **how)

    def all_to_all_single(how):
        return dist.all_to_all_single(torch.zeros(2 * n), x.repeat(n), **how)

    def barrier(how):
        return dist.barrier(**how)

    def sparse(how):
        return dist.all_reduce(torch.eye(2).to_sparse(), **how)

    def average(how):
        return dist.all_reduce(x.clone(), op=dist.ReduceOp.AVG, **how)

    return [
        all_reduce,
        all_reduce_coalesced,
        broadcast,
        reduce,
        all_gather,
        all_gather_single,
        all_gather_coalesced,
        gather,
        scatter,
        reduce_scatter,
        reduce_scatter_single,
        all_to_all,
        all_to_all_single,
        barrier,
        sparse,
        average,
    ]


WAITS = {
    "wait": lambda w: w.wait(),
    "wait_timeout": lambda w: w.wait(timedelta(seconds=20)),
    "wait_keyword": lambda w: w.wait(timeout=timedelta(seconds=20)),
}
BEFORE = {
    **WAITS,
    "wait_twice": lambda w: [w.wait(), w.wait()],
    "future": lambda w: w.get_future().wait(),
    "then": lambda w: w.get_future().then(lambda f: ("then", f.value())).wait(),
    "then_then": lambda w: w.get_future().then(lambda f: 1).then(lambda f: f.value() + 1).wait(),
    "callback": lambda w: called_back(w),
}
"""What a program asks of a handle of an operation that may not be complete."""

AFTER = {
    "completed": lambda w: w.is_completed(),
    "success": lambda w: w.is_success(),
    "exception": lambda w: w.exception(),
    "result": lambda w: w.result(),
    "future_done": lambda w: w.get_future().done(),
    "future_value": lambda w: [w.get_future().wait(), w.get_future().value()],
    "late_then": lambda w: w.get_future().then(lambda f: f.value()).wait(),
    "future_result": lambda w: w.get_future_result().wait(),
    "synchronize": lambda w: w.synchronize(),
    "source": lambda w: w.source_rank(),
    "_source": lambda w: w._source_rank(),
    "boxed": lambda w: w.boxed() is not None,
    "bool": lambda w: bool(w),
    "is_work": lambda w: isinstance(w, dist.Work),
    "duration": lambda w: w._get_duration(),
    "sequence": lambda w: type(w._get_sequence_number()).__name__,
    "op_type": lambda w: w._get_op_type(),
    "no_such": lambda w: w.no_such_method(),
    "block_stream": lambda w: w.block_current_stream(),
}
"""What it asks after `wait`."""


def called_back(work):
    seen = []
    future = work.get_future()
    future.add_done_callback(lambda f: seen.append(f.done()))
    future.wait()
    work.wait()
    return seen


def polled(t):
    for name in ("all_reduce", "broadcast", "all_gather", "barrier", "all_to_all_single"):
        operation = next(o for o in operations(t) if o.__name__ == name)

        def attempt(operation=operation):
            work = operation({"async_op": True})
            while not work.is_completed():
                pass
            return [work.is_success(), work.wait()]

        t(f"work/{name}/polled", attempt)


def order(t):
    rank = t.rank

    def out_of_order():
        xs = [torch.full((2,), float(10 * k + rank)) for k in range(4)]
        works = [dist.all_reduce(x, async_op=True) for x in xs]
        for k in (2, 0, 3, 1):
            works[k].wait()
        return xs

    def never_waited():
        x = torch.ones(2)
        dist.all_reduce(x, async_op=True)
        dist.barrier()
        return "ok"

    def mixed():
        x, y = torch.ones(2), torch.ones(2) * rank
        work = dist.all_reduce(x, async_op=True)
        dist.broadcast(y, 1)
        work.wait()
        return [x, y]

    def all_futures():
        xs = [torch.full((2,), float(k + rank)) for k in range(3)]
        works = [dist.all_reduce(x, async_op=True) for x in xs]
        both = torch.futures.collect_all([w.get_future() for w in works])
        return [f.wait() for f in both.wait()]

    def wait_all():
        works = [dist.all_reduce(torch.full((2,), float(k + rank)), async_op=True) for k in range(3)]
        return torch.futures.wait_all([w.get_future() for w in works])

    def raising_then():
        work = dist.all_reduce(torch.ones(2), async_op=True)

        def fail(future):
            raise KeyError("in a callback")

        return work.get_future().then(fail).wait()

    def temporary():
        work = dist.all_reduce(torch.ones(3) * rank, async_op=True)
        work.wait()
        return work.result()

    def refused_late(kind):
        x = torch.ones(2)
        if kind == "dtype":
            work = dist.all_reduce(x.to(torch.int16), async_op=True)
        elif kind == "op":
            work = dist.all_reduce(x, op=dist.ReduceOp.BAND, async_op=True)
        elif kind == "premul":
            work = dist.all_reduce(x, op=dist._make_nccl_premul_sum(2.0), async_op=True)
        elif kind == "average":
            work = dist.all_reduce(x.to(torch.int32), op=dist.ReduceOp.AVG, async_op=True)
        elif kind == "gather":
            out = [torch.zeros(2, dtype=torch.int16) for _ in range(t.world)]
            work = dist.all_gather(out, x.to(torch.int16), async_op=True)
        elif kind == "scatter":
            work = dist.reduce_scatter_tensor(x, x.repeat(t.world), op=dist.ReduceOp.BAND, async_op=True)
        elif kind == "leaf":
            work = dist.all_gather([x.clone().requires_grad_() for _ in range(t.world)], x, async_op=True)
        else:
            work = dist.all_gather([x], x, async_op=True)
        try:
            work.wait()
        except Exception as e:
            return ["late", type(e).__name__, type(work.exception()).__name__]
        return "done"

    for kind in ("dtype", "op", "premul", "average", "gather", "scatter", "leaf", "length"):
        t(f"work/refused/{kind}", lambda kind=kind: refused_late(kind))
    for attempt in (out_of_order, never_waited, mixed, all_futures, wait_all, raising_then, temporary):
        t(f"work/{attempt.__name__}", attempt)


def sequence_numbers(t):
    group = dist.new_group(list(range(t.world)))

    def number(g):
        return g._get_sequence_number_for_group()

    for which, g in (("world", dist.group.WORLD), ("group", group)):
        t(f"sequence/{which}/start", lambda g=g: number(g) if g is group else "any")
    x, n = torch.ones(2), t.world
    me, steps = t.rank, {}
    steps["all_reduce"] = lambda: dist.all_reduce(x, group=group)
    steps["all_reduce_coalesced"] = lambda: dist.all_reduce_coalesced([x, x], group=group)
    steps["all_reduce_sparse"] = lambda: dist.all_reduce(torch.eye(2).to_sparse(), group=group)
    steps["refused"] = lambda: dist.all_reduce(x, op=dist.ReduceOp.BAND, group=group)
    steps["broadcast"] = lambda: dist.broadcast(x, 0, group=group)
    steps["reduce"] = lambda: dist.reduce(x, 0, group=group)
    steps["all_gather"] = lambda: dist.all_gather([torch.zeros(2) for _ in range(n)], x, group=group)
    steps["all_gather_single"] = lambda: dist.all_gather_into_tensor(torch.zeros(2 * n), x, group=group)
    steps["all_gather_coalesced"] = lambda: dist.all_gather_coalesced([[torch.zeros(2)]] * n, [x], group=group)
    steps["gather"] = lambda: dist.gather(x, [torch.zeros(2) for _ in range(n)] if me == 0 else None, 0, group=group)
    steps["scatter"] = lambda: dist.scatter(x, [x.clone()] * n if me == 0 else None, 0, group=group)
    steps["reduce_scatter"] = lambda: dist.reduce_scatter(torch.zeros(2), [x] * n, group=group)
    steps["reduce_scatter_single"] = lambda: dist.reduce_scatter_tensor(torch.zeros(2), x.repeat(n), group=group)
    steps["all_to_all"] = lambda: dist.all_to_all([torch.zeros(2) for _ in range(n)], [x] * n, group=group)
    steps["all_to_all_single"] = lambda: dist.all_to_all_single(torch.zeros(n), torch.zeros(n), group=group)
    steps["barrier"] = lambda: dist.barrier(group=group)
    steps["monitored_barrier"] = lambda: dist.monitored_barrier(group=group)
    steps["object"] = lambda: dist.all_gather_object([None] * n, me, group=group)
    steps["send"] = lambda: dist.send(x, 1, group=group) if me == 0 else dist.recv(x, 0, group=group) if me == 1 else 0
    steps["average"] = lambda: dist.all_reduce(x, op=dist.ReduceOp.AVG, group=group)
    steps["premul"] = lambda: dist.all_reduce(x, op=dist._make_nccl_premul_sum(2.0), group=group)
    steps["int16"] = lambda: dist.all_reduce(x.to(torch.int16), group=group)
    steps["int16_gather"] = lambda: dist.gather(
        x.to(torch.int16), [x.to(torch.int16)] * n if me == 0 else None, 0, group
    )
    steps["int16_scatter"] = lambda: dist.reduce_scatter(x.to(torch.int16), [x.to(torch.int16)] * n, group=group)
    steps["average_int"] = lambda: dist.all_reduce(x.to(torch.int32), op=dist.ReduceOp.AVG, group=group)
    steps["wrong_length"] = lambda: dist.all_gather([x], x, group=group)

    def coalesced():
        with dist._coalescing_manager(group):
            dist.all_reduce(torch.ones(2), group=group)
            dist.all_reduce(torch.ones(2), group=group)

    steps["coalesced"] = coalesced

    def coalesced_scatter():
        with dist._coalescing_manager(group):
            dist.reduce_scatter_tensor(torch.zeros(2), x.repeat(n), group=group)
            dist.reduce_scatter_tensor(torch.zeros(2), x.repeat(n), group=group)

    steps["coalesced_scatter"] = coalesced_scatter
    for name, step in steps.items():

        def attempt(step=step):
            try:
                step()
            except Exception:
                pass
            return number(group)

        t(f"sequence/after/{name}", attempt)


def run(t):
    for operation in operations(t):
        name = operation.__name__
        t(f"work/{name}/sync", lambda o=operation: o({}))
        t(f"work/{name}/sync_keyword", lambda o=operation: o({"async_op": False}))
        for question, ask in BEFORE.items():
            t(f"work/{name}/{question}", lambda o=operation, ask=ask: ask(o({"async_op": True})))
            dist.barrier()
        for question, ask in AFTER.items():
            t(
                f"work/{name}/after/{question}",
                lambda o=operation, ask=ask: (w := o({"async_op": True}), w.wait(), ask(w))[2],
            )
    polled(t)
    order(t)
    sequence_numbers(t)
