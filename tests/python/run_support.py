"""Runs the installed command, or real gloo beside it, in a folder of its own."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

TESTS = pathlib.Path(__file__).resolve().parent.parent
CASES = TESTS / "cases"
PROGRAMS = TESTS / "programs"
#: Set by launchers; a test that runs under one must not hand them on.
_LAUNCHERS = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_",
    "SLURM_",
    "OMPI_",
    "PMI_",
)


@dataclass(frozen=True)
class Done:
    """How a run ended. `status` is None if it did not end in time."""

    status: int | None
    out: str
    err: str
    seconds: float
    findings: list[dict[str, Any]] = field(default_factory=list)


def allranks() -> list[str]:
    """The command: as installed beside this interpreter, else the package that it imports."""
    script = pathlib.Path(sys.executable).with_name("allranks")
    return [str(script)] if script.exists() else [sys.executable, "-m", "allranks"]


def torchrun(world: int) -> list[str]:
    """The command that runs a script on real processes."""
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)]


def environment(**extra: str) -> dict[str, str]:
    """This process's, without what launchers and tests left in it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHERS)}
    return {**kept, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", **extra}


def start(argv: Sequence[str], cwd: pathlib.Path, *, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Starts a command that reads nothing."""
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, cwd=cwd, env=env or environment(), stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)


def go(argv: Sequence[str], cwd: pathlib.Path, *, env: Mapping[str, str] | None = None, limit: float = 60) -> Done:
    """Runs a command to its end."""
    begin = time.monotonic()
    process = subprocess.Popen(
        argv,
        cwd=cwd,
        env=env or environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        out, err = process.communicate(timeout=limit)
        status: int | None = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        status = None
    return Done(status, out.decode(), err.decode(errors="replace"), time.monotonic() - begin)


def run(script: pathlib.Path, world: int, cwd: pathlib.Path, *options: str, args: Sequence[str] = ()) -> Done:
    """`allranks run` of a script, with its findings."""
    found = cwd / "findings.jsonl"
    words = [*allranks(), "run", "-n", str(world), "--findings", str(found), *options, str(script), *args]
    done = go(words, cwd)
    lines = found.read_text().splitlines() if found.exists() else []
    return Done(done.status, done.out, done.err, done.seconds, [json.loads(line) for line in lines])


def rank_lines(text: str) -> list[str]:
    """Lines `rank R: ...`, by rank; the order within a rank is kept."""
    rows = [line for line in text.splitlines() if re.match(r"rank \d+: ", line)]
    return sorted(rows, key=lambda line: int(line.split()[1].rstrip(":")))
