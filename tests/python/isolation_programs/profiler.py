"""torch's profiler on all ranks at once: each counts its own operators and writes a trace."""

import json
import tempfile

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule

dist.init_process_group("gloo")
r = dist.get_rank()
path = tempfile.mktemp(suffix=".json")


def dots(events):
    return sum(event.count for event in events if event.key == "aten::dot")


def work():
    torch.ones(8) @ torch.ones(8)
    dist.all_reduce(torch.ones(1))


with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as p:
    for _ in range(3):
        work()
assert dots(p.key_averages()) == 3
p.export_chrome_trace(path)
with open(path) as file:
    assert sum(event.get("name") == "aten::dot" for event in json.load(file)["traceEvents"]) == 3
dist.barrier()
plan = schedule(wait=1, warmup=1, active=2)
with profile(schedule=plan, on_trace_ready=lambda p: p.export_chrome_trace(path)) as p:
    for _ in range(5):
        work()
        p.step()
for turn in range(dist.get_world_size()):
    if turn == r:  # Alone, it is kineto's own trace.
        with profile(activities=[ProfilerActivity.CPU]) as p:
            torch.ones(8) @ torch.ones(8)
        p.export_chrome_trace(path)
        assert dots(p.key_averages()) == 1
    dist.barrier()
print(f"RESULT rank={r} ok", flush=True)
