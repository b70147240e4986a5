"""Seconds to copy as many bytes as an all_reduce of 8 ranks must read and write: copy_bytes.py NUMEL TIMES."""

import os
import sys
import time

import torch

numel, times = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(os.cpu_count() or 1)
source, target = torch.ones(8 * numel), torch.ones(8 * numel)
target.copy_(source)
start = time.perf_counter()
for _ in range(times):
    target.copy_(source)
print("RESULT", (time.perf_counter() - start) / times)
