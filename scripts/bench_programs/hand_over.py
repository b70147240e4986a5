"""Seconds of one hand-over to another rank, all private state swapped. Only under `allranks run`."""

import statistics
import time

import torch.distributed as dist
from allranks import runtime

ROUNDS, YIELDS = 20, 200
dist.init_process_group("gloo")
run = runtime.current()
assert run is not None
dist.barrier()
times = []
for _ in range(ROUNDS):
    start = time.perf_counter()
    for _ in range(YIELDS):
        run.baton.yield_now()
    times.append((time.perf_counter() - start) / YIELDS / dist.get_world_size())
if dist.get_rank() == 0:
    print("RESULT", statistics.median(times))
