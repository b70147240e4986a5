"""`allranks.run` may be called again and again: the process is afterwards as it was before."""

import os
import random
import sys
import threading
import time
import warnings

import torch
import torch.distributed as dist
from allranks.launch import RankFailed, run_fn


def work(x):
    dist.init_process_group("gloo")
    total = torch.ones(1) * dist.get_rank()
    dist.all_reduce(total)
    dist.destroy_process_group()
    os.environ["LEAK"] = "1"
    sys.argv.append("leak")
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1 + dist.is_available())
    os.chdir("/")
    random.seed(1)
    warnings.simplefilter("error")
    return total.item() + x


def state():
    return (
        threading.Lock,
        threading.Thread.start,
        time.sleep,
        os.getpid(),
        os.getcwd(),
        list(sys.argv),
        list(sys.meta_path),
        torch.get_default_dtype(),
        torch.get_num_threads(),
        dict(os.environ),
        list(warnings.filters),
        random.getstate(),
        threading.active_count(),
    )


def fails():
    if os.environ["RANK"] == "2":
        raise KeyError("no")
    dist.init_process_group("gloo")
    dist.barrier()


before = state()
for i in range(3):
    assert run_fn(work, 4, args=(i,)) == [6.0 + i] * 4
assert state() == before, (before, state())
try:
    run_fn(fails, 3)
except RankFailed as failure:
    assert failure.rank == 2 and isinstance(failure.__cause__, KeyError)
else:
    raise AssertionError("no failure")
assert run_fn(work, 2, kwargs={"x": 1}) == [2.0, 2.0]
assert state() == before
print("RESULT ok")
