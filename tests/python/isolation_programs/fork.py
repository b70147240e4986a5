"""A process forked after a run has no thread of its parent; large copies and sums are shared out among its own."""

import os
import signal

import allranks
import torch
import torch.distributed as dist


def work() -> float:
    dist.init_process_group("gloo")
    x = torch.ones(1 << 20)
    dist.broadcast(x, 0)
    dist.all_reduce(x)
    return x.sum().item()


expected = [2.0 * (1 << 20)] * 2
assert allranks.run(work, world_size=2) == expected
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(0 if allranks.run(work, world_size=2) == expected else 1)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(f"the child ended with {status}")
