"""What a program can see of c10d is the same on real gloo and on all ranks in one process: values, bits, exceptions."""

from __future__ import annotations

import itertools
import pathlib

import pytest
from run_support import PROGRAMS, go, rank_lines, run, torchrun

ARGUMENTS = PROGRAMS / "arguments.py"
BITS = PROGRAMS / "bits.py"


def both(tmp_path: pathlib.Path, script: pathlib.Path, *args: str, world: int) -> None:
    """Runs the script on both sides; ranks must print the same lines in the same order, and get no error finding."""
    real = go([*torchrun(world), str(script), *args], tmp_path, limit=100)
    ours = run(script, world, tmp_path, args=args)
    assert real.status == 0, real.err[-3000:]
    assert ours.status == 0, ours.err[-3000:]
    assert not [f for f in ours.findings if f["severity"] == "error"], ours.err[-3000:]
    expected, got = rank_lines(real.out), rank_lines(ours.out)
    assert expected
    differing = [f"gloo: {a}\nours: {b}" for a, b in itertools.zip_longest(expected, got) if a != b]
    assert not differing, f"{len(differing)} lines differ:\n" + "\n".join(differing[:20])


@pytest.mark.slow
def test_arguments(tmp_path: pathlib.Path) -> None:
    both(tmp_path, ARGUMENTS, world=3)


@pytest.mark.slow
def test_bits(tmp_path: pathlib.Path) -> None:
    both(tmp_path, BITS, "float32", "bfloat16", "complex64", "int32", "sparse", world=3)
