"""What tests cost with all ranks in one process, against the same tests spawned, in one run.

    python scripts/bench_testing.py [--every N] [--only WORD]

Torch's own `distributed_test.py` at 4 ranks: each N-th (default 8th) of the tests that real gloo passes, first with
`--allranks`, then as torch has it, one process a rank. Then 200 tests of the plugin, and one that deadlocks. Wall time
is that of the whole pytest process; CPU time is that of it and everything it started. Prints a line a measure.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SUITES = HERE.parent / "tests" / "torch_suites"

MARKED = """
import pytest, torch, torch.distributed as dist

@pytest.mark.allranks(world_size=4)
@pytest.mark.parametrize("number", range(200))
def test_sum(rank, world_size, number):
    tensor = torch.tensor([float(rank + number)])
    dist.all_reduce(tensor)
    assert tensor.item() == 6 + 4 * number
"""
NOTHING = """
import pytest, torch, torch.distributed as dist

def test_nothing():
    pass
"""
DEADLOCK = """
import pytest, torch, torch.distributed as dist

@pytest.mark.allranks(world_size=4)
def test_warm(rank):
    dist.barrier()

@pytest.mark.allranks(world_size=4)
def test_deadlock(rank):
    if rank != 2:
        dist.all_reduce(torch.ones(1))
"""


@dataclass
class Cost:
    """Of a whole pytest run, in seconds."""

    wall: float
    cpu: float
    output: str


def pytest(*words: str, **environment: str) -> Cost:
    """Runs pytest by itself."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    with tempfile.TemporaryFile("w+") as out:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **environment}, cwd=HERE.parent
        )
        _, _, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        out.seek(0)
        return Cost(wall, usage.ru_utime + usage.ru_stime, out.read())


def last_line(cost: Cost) -> str:
    """Pytest's own summary."""
    return cost.output.strip().splitlines()[-1]


def suite(every: int) -> None:
    """Torch's tests, both ways."""
    driver = SUITES / "distributed_suite.py"
    names = (SUITES / "passed_world4.txt").read_text().split()[::every]
    tests = [f"{driver}::TestDistBackendWithSpawn::{name}" for name in names]
    where = {"BACKEND": "gloo", "WORLD_SIZE": "4"}
    ours = pytest("--allranks", *tests, **where)
    print(f"torch's distributed_test.py, {len(names)} tests, --allranks: {last_line(ours)}", flush=True)
    spawned = pytest("-o", "timeout=0", *tests, **where)
    print(f"the same spawned: {last_line(spawned)}")
    print(
        f"wall {ours.wall:.1f} s against {spawned.wall:.1f} s: {spawned.wall / ours.wall:.1f}x less (goal 20x); "
        f"CPU {ours.cpu:.1f} s against {spawned.cpu:.1f} s: {spawned.cpu / ours.cpu:.1f}x less (goal 50x)",
        flush=True,
    )


def marked() -> None:
    """200 tests at 4 ranks, without what importing and starting pytest costs."""
    with tempfile.TemporaryDirectory() as folder:
        costs = []
        for name, text in (("test_nothing.py", NOTHING), ("test_marked.py", MARKED)):
            file = Path(folder, name)
            file.write_text(text)
            costs.append(pytest(str(file)))
        print(f"200 marked tests at 4 ranks: {last_line(costs[1])}")
        print(f"CPU beyond an empty test file: {costs[1].cpu - costs[0].cpu:.2f} s (goal 10 s)", flush=True)


def deadlock() -> None:
    """How soon a test that hangs on real processes has failed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "test_deadlock.py")
        file.write_text(DEADLOCK)
        cost = pytest("--durations=0", "-vv", str(file))
        found = re.search(r"([\d.]+)s call .*test_deadlock", cost.output)
        seconds = found[1] if found else "under 0.005"
        named = "missing-participant" in cost.output
        print(f"a deadlocking test fails after {seconds} s (goal 1 s), with its finding: {'yes' if named else 'NO'}")


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=8)
    parser.add_argument("--only", default="", help="measures whose name contains this: suite, marked, deadlock")
    options = parser.parse_args()
    measures = {"suite": lambda: suite(options.every), "marked": marked, "deadlock": deadlock}
    for name, measure in measures.items():
        if options.only in name:
            measure()
    return 0


if __name__ == "__main__":
    sys.exit(main())
