"""What is private to a rank, shown by programs that set it differently, hand over and read it back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "isolation_programs"
COMMAND = [sys.executable, "-c", "import sys; from allranks._cli import main; sys.exit(main())", "run", "-q"]


def run(*words: str, world: int = 2, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs `allranks run`; a program that hangs fails the test."""
    command = [*COMMAND, "-n", str(world), *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=90, stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})}
    )


@pytest.mark.oldest
@pytest.mark.parametrize(
    ("program", "world", "lines"),
    [("slots", 3, ("ok", "atexit")), ("children", 2, ("ok",)), ("signals", 2, ("ok",)), ("profiler", 3, ("ok",))],
)
def test_program(program: str, world: int, lines: tuple[str, ...]) -> None:
    done = run(str(PROGRAMS / f"{program}.py"), world=world)
    got = sorted(line for line in done.stdout.splitlines() if line.startswith("RESULT"))
    assert got == sorted(f"RESULT rank={r} {line}" for r in range(world) for line in lines), done.stderr
    assert done.returncode == 0


def test_cost_of_a_hand_over() -> None:
    done = run(str(PROGRAMS / "cost.py"), world=4)
    slots, microseconds = done.stdout.split()
    assert int(slots) > 20
    assert float(microseconds) < 60, "15 us on a quiet machine; this only catches a blunder"


def test_run_fn_leaves_the_process_as_it_was() -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "run_fn.py")], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.stdout.split("\n") == ["RESULT ok", ""], done.stderr


PACKAGE = """
import threading
state = threading.local()
state.depth, state.stack = 0, []

class Base:
    state = threading.local()
    state.precision = 0.5
"""


@pytest.mark.parametrize("imported", ["by a rank", "before the run"])
def test_thread_local_variables_of_installed_packages(tmp_path: Path, imported: str) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "installed.py").write_text(PACKAGE)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    program = str(PROGRAMS / "thread_locals.py")
    if imported == "by a rank":
        done = run(program, world=3, env={"PYTHONPATH": path})
    else:
        done = subprocess.run(
            [sys.executable, program],
            capture_output=True,
            text=True,
            timeout=90,
            env={**os.environ, "PYTHONPATH": path},
        )
    assert sorted(done.stdout.splitlines()) == [f"RESULT rank={r} ok" for r in range(3)], done.stderr
    assert done.returncode == 0


def test_a_forked_process_has_threads_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "fork.py")],
        capture_output=True,
        text=True,
        timeout=90,
        env={**os.environ, "RAYON_NUM_THREADS": "2"},
    )
    assert done.stdout == "the child ended with 0\n", done.stderr
