"""Seconds of one all_reduce: all_reduce.py NUMEL TIMES. Rank 0 prints them."""

import sys
import time

import torch
import torch.distributed as dist

numel, times = int(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("gloo")
t = torch.ones(numel)
for _ in range(min(times, 20)):
    dist.all_reduce(t)
dist.barrier()
start = time.perf_counter()
for _ in range(times):
    dist.all_reduce(t)
seconds = (time.perf_counter() - start) / times
if dist.get_rank() == 0:
    print("RESULT", seconds)
dist.destroy_process_group()
