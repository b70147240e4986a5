"""Random programs give the same bytes on all ranks in one process and on real gloo; and a wrong bit is found."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
#: Enough for every class of operation and every dtype several times; `make soak` runs more.
PROGRAMS = 200

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def soak(logs: pathlib.Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Builds the tool if need be, and runs it."""
    command = ["cargo", "run", "--quiet", "--package", "allranks-soak", "--", "run", "--logs", str(logs)]
    return subprocess.run(
        [*command, "--python", sys.executable, *words],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def test_as_real_gloo(tmp_path: pathlib.Path) -> None:
    done = soak(tmp_path, "--seed", "1", "--count", str(PROGRAMS))
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    assert done.stdout.splitlines()[-1].endswith(" programs: 0 differing bytes")


def test_a_wrong_bit_is_found(tmp_path: pathlib.Path) -> None:
    done = soak(tmp_path, "--seed", "1", "--count", "12", "--spoil", "all_reduce", "--shrink", "1")
    assert done.returncode == 1, f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    smallest = next(line for line in done.stdout.splitlines() if line.startswith("# as data: "))
    program = json.loads(smallest.removeprefix("# as data: "))
    assert [step["class"] for step in program["steps"]] == ["all_reduce"]
    assert program["world"] == 1
    assert len(program["groups"]) == 1
    # What is printed is a program by itself, and says what differs.
    assert "dist.all_reduce(x0, " in done.stdout
    assert "#   gloo: " in done.stdout
