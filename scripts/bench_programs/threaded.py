"""The same as all_reduce.py on torch's threaded process group (of its own test suite), with 8 ranks."""

import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.multi_threaded_pg import _install_threaded_pg

WORLD = 8
numel, times = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
torch._C._distributed_c10d._set_thread_isolation_mode(True)
_install_threaded_pg()
store = dist.HashStore()


def rank_main(rank: int) -> None:
    """One rank, on its thread."""
    dist.init_process_group("threaded", rank=rank, world_size=WORLD, store=store)
    t = torch.ones(numel)
    for _ in range(min(times, 20)):
        dist.all_reduce(t)
    dist.barrier()
    start = time.perf_counter()
    for _ in range(times):
        dist.all_reduce(t)
    seconds = (time.perf_counter() - start) / times
    if rank == 0:
        print("RESULT", seconds, flush=True)


threads = [threading.Thread(target=rank_main, args=(rank,)) for rank in range(WORLD)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
