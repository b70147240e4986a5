"""Sends and receives."""

import torch
import torch.distributed as dist

from .works import AFTER, WAITS


def ring(t, dtype=torch.float32, tag=0, **how):
    x, y = torch.full((2,), 5.0 + t.rank).to(dtype), torch.zeros(2, dtype=dtype)
    works = [dist.isend(x, (t.rank + 1) % t.world, tag=tag, **how), dist.irecv(y, (t.rank - 1) % t.world, tag=tag)]
    for work in works:
        work.wait()
    return y


def pair(t, send, receive):
    """Rank 0 sends, rank 1 receives; the others look on."""
    return send() if t.rank == 0 else receive() if t.rank == 1 else None


def tags(t):
    for tag in (0, 1, 7, -1, -5, 2**31 - 1, 2**20, 2**31, 2**33, 1.5, "a", None, True):
        t(f"tag/{tag!r}", lambda tag=tag: ring(t, tag=tag))

    def swapped():
        xs = [torch.full((2,), float(k)) for k in range(3)]
        if t.rank == 0:
            works = [dist.isend(xs[k], 1, tag=k) for k in range(3)]
        elif t.rank == 1:
            xs = [torch.zeros(2) for _ in range(3)]
            works = [dist.irecv(xs[k], 0, tag=k) for k in (2, 0, 1)]
        else:
            works = []
        for work in works:
            work.wait()
        return xs

    t("tag/swapped", swapped)


def sources(t):
    x = torch.full((2,), 3.0)
    y = torch.zeros(2)
    t("recv/value", lambda: pair(t, lambda: dist.send(x, 1), lambda: [dist.recv(y, 0), y]))
    t("recv/any", lambda: pair(t, lambda: dist.send(x, 1), lambda: [dist.recv(y), y]))
    t("recv/any_tag", lambda: pair(t, lambda: dist.send(x, 1, tag=4), lambda: [dist.recv(y, tag=4), y]))

    def any_async():
        work = dist.irecv(y)
        work.wait()
        return [y, work.source_rank(), work._source_rank()]

    t("irecv/any", lambda: pair(t, lambda: dist.send(x, 1), any_async))

    def known():
        work = dist.irecv(y, 0)
        work.wait()
        return [work.source_rank(), work._source_rank()]

    t("irecv/known", lambda: pair(t, lambda: dist.send(x, 1), known))
    group = dist.new_group([t.world - 1, 0])
    member = t.rank in (0, t.world - 1)
    last = t.world - 1
    t(
        "recv/group",
        lambda: (
            [dist.send(x, last, group=group) if t.rank == 0 else dist.recv(y, 0, group=group), y] if member else None
        ),
    )
    t(
        "recv/group_any",
        lambda: [dist.send(x, last, group=group) if t.rank == 0 else dist.recv(y, group=group)] if member else None,
    )
    t(
        "recv/group_src",
        lambda: (
            [dist.send(x, group=group, group_dst=0) if t.rank == 0 else dist.recv(y, group=group, group_src=1)]
            if member and t.world > 1
            else None
        ),
    )
    t("send/outsider", lambda: dist.send(x, 0, group=group) if not member else None)
    t("isend/outsider", lambda: dist.isend(x, 0, group=group) if not member else None)
    t("irecv/outsider", lambda: dist.irecv(x, 0, group=group) if not member else None)
    t("recv/outsider", lambda: dist.recv(x, 0, group=group) if not member else None)


def refusals(t):
    x = torch.ones(2)
    # gloo waits for a rank outside the group until its time is up.
    for peer in (t.rank, None, 1.0, "0"):
        shown = "self" if peer == t.rank and isinstance(peer, int) else repr(peer)
        for kind in ("send", "isend", "recv", "irecv"):
            if kind.endswith("recv") and peer is None:
                continue
            if isinstance(peer, float) and peer == t.rank:
                continue
            t(f"{kind}/peer/{shown}", lambda k=kind, p=peer: getattr(dist, k)(x, p))
    for kind in ("send", "isend", "recv", "irecv"):
        other = (t.rank + 1) % t.world
        f = getattr(dist, kind)
        t(f"{kind}/both", lambda f=f, o=other: f(x, o, None, 0, o))
        t(f"{kind}/strided", lambda f=f, o=other: f(torch.zeros(2, 4)[:, ::2], o))
        t(f"{kind}/transposed", lambda f=f, o=other: f(torch.zeros(2, 4).t(), o))
        t(f"{kind}/sparse", lambda f=f, o=other: f(torch.eye(2).to_sparse(), o))
        for wrong in (None, 3, [x]):
            t(f"{kind}/wrong/{type(wrong).__name__}", lambda f=f, o=other, w=wrong: f(w, o))


def batches(t):
    n, rank = t.world, t.rank
    after, before = (rank + 1) % n, (rank - 1) % n

    def batch(order, tag=0, group=None):
        x, y = torch.full((2,), float(rank)), torch.zeros(2)
        ops = [dist.P2POp(dist.isend, x, after, group, tag), dist.P2POp(dist.irecv, y, before, group, tag)]
        works = dist.batch_isend_irecv([ops[k] for k in order])
        for work in works:
            work.wait()
        return [len(works), y]

    t("batch/send_first", lambda: batch((0, 1)))
    t("batch/recv_first", lambda: batch((1, 0)))
    t("batch/tag", lambda: batch((1, 0), tag=3))
    t("batch/empty", lambda: dist.batch_isend_irecv([]))
    t("batch/none", lambda: dist.batch_isend_irecv(None))
    t("batch/not_ops", lambda: dist.batch_isend_irecv([1]))
    t("batch/wrong_op", lambda: dist.P2POp(dist.all_reduce, torch.ones(1), after))
    t("batch/self", lambda: dist.P2POp(dist.isend, torch.ones(1), rank))
    t("batch/no_peer", lambda: dist.P2POp(dist.isend, torch.ones(1)))
    t("batch/repr", lambda: repr(dist.P2POp(dist.isend, torch.ones(1), 0 if rank else 1)).split("(")[0])
    t("batch/attributes", lambda: [(op := dist.P2POp(dist.isend, torch.ones(1), after)).peer, op.tag, op.group_peer])

    def two_ways():
        x = [torch.full((3,), float(rank)), torch.full((2,), float(rank + 10))]
        y = [torch.zeros(3), torch.zeros(2)]
        ops = [dist.P2POp(dist.isend, v, after) for v in x] + [dist.P2POp(dist.irecv, v, before) for v in y]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        return y

    t("batch/several", two_ways)
    t("batch/mixed_dtypes", lambda: mixed_dtypes(t, after, before))


def mixed_dtypes(t, after, before):
    x, y = torch.ones(2, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    z, w = torch.ones(2), torch.zeros(2)
    ops = [
        dist.P2POp(dist.isend, x, after),
        dist.P2POp(dist.isend, z, after),
        dist.P2POp(dist.irecv, y, before),
        dist.P2POp(dist.irecv, w, before),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return [y, w]


def handles(t):
    """What the handles of messages answer."""

    def handle():
        return dist.isend(torch.ones(2), 1) if t.rank == 0 else dist.irecv(torch.zeros(2), 0)

    def after(ask):
        work = handle()
        work.wait()
        return ask(work)

    # gloo waits for a second message when it is asked to wait twice.
    for question, ask in WAITS.items():
        t(f"message/{question}", lambda ask=ask: ask(handle()) if t.rank < 2 else None)
    for question, ask in AFTER.items():
        t(f"message/after/{question}", lambda ask=ask: after(ask) if t.rank < 2 else None)


def same_size(t):
    """Bytes are what counts in a message, not shapes."""
    x = torch.arange(6.0)
    for name, out in {"shape": torch.zeros(2, 3), "scalar_like": torch.zeros(6, 1)}.items():
        t(f"message/other_{name}", lambda o=out: pair(t, lambda: dist.send(x, 1), lambda: [dist.recv(o, 0), o]))


def run(t):
    tags(t)
    sources(t)
    refusals(t)
    batches(t)
    handles(t)
    same_size(t)
