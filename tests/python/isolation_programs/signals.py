"""Signals that the system delivers reach every rank; each rank has an alarm clock of its own."""

import os
import signal
import time

import torch.distributed as dist


def too_late(number, frame):
    raise TimeoutError("too late")


dist.init_process_group("gloo")
r = dist.get_rank()
got = []
signal.signal(signal.SIGUSR1, lambda number, frame: got.append((number, dist.get_rank())))
dist.barrier()
time.sleep(0.2)
if r == 0:
    os.kill(int(os.readlink("/proc/self")), signal.SIGUSR1)
time.sleep(0.3)
assert got == [(signal.SIGUSR1, r)], got
signal.signal(signal.SIGALRM, too_late)
signal.alarm(1 if r == 0 else 20)
try:
    time.sleep(2)
    raised = False
except TimeoutError:
    raised = True
signal.alarm(0)
assert raised == (r == 0)
print(f"RESULT rank={r} ok", flush=True)
dist.barrier()
