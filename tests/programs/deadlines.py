"""What a rank is told when waits time out; printed alike under torchrun and under allranks. Two ranks; rank 1 is late.

Texts are shown without the place in gloo's source and the port that they begin or go on with.
"""

import contextlib
import os
import re
import time
import warnings
from datetime import timedelta

os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.simplefilter("ignore")

import torch
import torch.distributed as dist

LIMIT = timedelta(milliseconds=400)
LONG = timedelta(minutes=2)


def plain(text):
    text = re.sub(r"\[[^\[\]]*\.cc(:\d+)?\] ", "", text)
    return re.sub(r"(\[127\.0\.0\.1\])(:\d+)?.*", r"\1", text, flags=re.DOTALL).replace("\n", "|")


def say(name, act):
    try:
        told = act()
        told = "fine" if told is None else str(told)
    except Exception as error:
        told = f"{type(error).__name__}: {plain(str(error))}"
    print(f"rank {rank}: {name}: {told}\n", end="", flush=True)  # One write: real ranks share a pipe.


def one():
    return torch.ones(4)


def two():
    return [one(), one()]


def at(root, make):
    return make() if rank == root else None


#: Of a group `g`: rank 0 does it in time, rank 1 does not.
OPERATIONS = {
    "all_reduce": lambda g: dist.all_reduce(one(), group=g),
    "all_reduce_coalesced": lambda g: dist.all_reduce_coalesced([one()], group=g),
    "reduce": lambda g: dist.reduce(one(), 0, group=g),
    "broadcast from here": lambda g: dist.broadcast(one(), 0, group=g),
    "broadcast from there": lambda g: dist.broadcast(one(), 1, group=g),
    "gather here": lambda g: dist.gather(one(), at(0, two), dst=0, group=g),
    "gather there": lambda g: dist.gather(one(), at(1, two), dst=1, group=g),
    "scatter from here": lambda g: dist.scatter(one(), at(0, two), src=0, group=g),
    "scatter from there": lambda g: dist.scatter(one(), at(1, two), src=1, group=g),
    "all_gather": lambda g: dist.all_gather(two(), one(), group=g),
    "all_gather_into_tensor": lambda g: dist.all_gather_into_tensor(torch.ones(8), one(), group=g),
    "all_gather_object": lambda g: dist.all_gather_object([None, None], 1, group=g),
    "reduce_scatter_tensor": lambda g: dist.reduce_scatter_tensor(torch.ones(2), one(), group=g),
    "all_to_all_single": lambda g: dist.all_to_all_single(one(), one(), group=g),
    "barrier": lambda g: dist.barrier(group=g),
    "send": lambda g: dist.send(one(), 1, group=g),
    "recv": lambda g: dist.recv(one(), 1, group=g),
    "recv from anybody": lambda g: dist.recv(one(), group=g),
    "isend": lambda g: dist.isend(one(), 1, group=g).wait(),
    "irecv": lambda g: dist.irecv(one(), 1, group=g).wait(),
    "monitored_barrier": lambda g: dist.monitored_barrier(group=g, timeout=LIMIT),
    "monitored_barrier of all": lambda g: dist.monitored_barrier(group=g, timeout=LIMIT, wait_all_ranks=True),
}


def operation(name, act):
    g = dist.new_group(timeout=LIMIT)
    dist.barrier()
    if rank == 0:
        say(name, lambda: act(g))
        say(f"{name}, then all_reduce", lambda: dist.all_reduce(one(), group=g))
        say(f"{name}, then isend", lambda: dist.isend(one(), 1, group=g))
    dist.barrier()
    if rank == 1:
        say(f"{name}, late", lambda: dist.all_reduce(one(), group=g))
    dist.barrier()


def operations():
    for name, act in OPERATIONS.items():
        operation(name, act)


def works():
    """What the Work says afterwards."""
    for name, issue in {
        "all_reduce": lambda g: dist.all_reduce(one(), group=g, async_op=True),
        "barrier": lambda g: dist.barrier(group=g, async_op=True),
        "reduce_scatter_tensor": lambda g: dist.reduce_scatter_tensor(torch.ones(2), one(), group=g, async_op=True),
        "isend": lambda g: dist.isend(one(), 1, group=g),
        "irecv": lambda g: dist.irecv(one(), 1, group=g),
    }.items():
        g = dist.new_group(timeout=LIMIT)
        dist.barrier()
        if rank == 0:
            work = issue(g)
            say(f"async {name}", work.wait)
            for question in ("is_completed", "is_success", "exception", "wait", "synchronize"):
                answer = getattr(work, question)
                say(f"async {name}, {question}", lambda answer=answer: plain(str(answer())))
            say(f"async {name}, future", lambda work=work: work.get_future().wait())
        dist.barrier()


def chosen_for_one_wait():
    """`Work.wait(timeout)`: a collective goes on, a message breaks the group."""
    g = dist.new_group(timeout=LONG)
    dist.barrier()
    if rank == 0:
        work = dist.all_reduce(one(), group=g, async_op=True)
        say("wait(timeout)", lambda: work.wait(LIMIT))
        say("wait(timeout), is_completed", work.is_completed)
        dist.barrier()
        say("wait(timeout), wait", work.wait)
    else:
        dist.barrier()
        say("wait(timeout), late", lambda: dist.all_reduce(one(), group=g))
    say("wait(timeout), then barrier", lambda: dist.barrier(group=g))
    message("isend", dist.isend)
    message("irecv", dist.irecv)


def message(name, issue):
    g = dist.new_group(timeout=LONG)
    dist.barrier()
    if rank == 0:
        work = issue(one(), 1, group=g)
        say(f"{name}.wait(timeout)", lambda: work.wait(LIMIT))
        say(f"{name}.wait(timeout), wait", work.wait)
        say(f"{name}.wait(timeout), barrier", lambda: dist.barrier(group=g))
    dist.barrier()


def chosen_for_one_operation():
    g = dist.new_group(timeout=LONG)
    dist.barrier()
    if rank == 0:
        options = dist.AllreduceOptions()
        options.timeout = LIMIT
        say("options.timeout", lambda: g.allreduce([one()], options).wait())
    dist.barrier()
    g = dist.new_group(timeout=LONG)
    dist.distributed_c10d._set_pg_timeout(LIMIT, g)
    dist.barrier()
    if rank == 0:
        say("set timeout", lambda: dist.all_reduce(one(), group=g))
    dist.barrier()


def over_while_nobody_waits():
    g = dist.new_group(timeout=LIMIT)
    dist.barrier()
    if rank == 0:
        work = dist.all_reduce(one(), group=g, async_op=True)
        time.sleep(3 * LIMIT.total_seconds())
        dist.barrier()
        say("over in the meantime", work.wait)
    else:
        time.sleep(2 * LIMIT.total_seconds())
        say("over in the meantime, late", lambda: dist.all_reduce(one(), group=g))
        dist.barrier()


def stores():
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        say("store.wait", lambda: store.wait(["a", "b"], LIMIT))
        store.set_timeout(LIMIT)
        say("store.get", lambda: store.get("a"))


dist.init_process_group("gloo")
rank = dist.get_rank()
for part in (operations, works, chosen_for_one_wait, chosen_for_one_operation, over_while_nobody_waits, stores):
    part()
say("the world goes on", lambda: dist.all_reduce(one()))
with contextlib.suppress(Exception):
    dist.destroy_process_group()
