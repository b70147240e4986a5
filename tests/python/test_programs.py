"""Whole programs, unmodified: the same results, files and exit status as on real gloo under torchrun.

The habits of `k_habits.py` print fixed lines; `k_habits.tsv` has what torchrun gave. Those about the life of a process
are compared with torchrun beside us, as is everything whose numbers depend on the machine.
"""

from __future__ import annotations

import csv
import pathlib
import re
import tempfile

import pytest
from run_support import PROGRAMS, Done, allranks, environment, go, torchrun

LIMIT = 240
#: Of each other program: script, arguments, world size.
TRAININGS = {
    "ddp": ("a_ddp_imagenet.py", [], 2),
    "ddp-workers": ("a_ddp_imagenet.py", ["--workers", "2", "--epochs", "1"], 2),
    "ddp-8": ("a_ddp_imagenet.py", ["--epochs", "1"], 8),
    "fsdp2-tp": ("b_fsdp2_tp.py", [], 4),
}
LIVE = ("at_exit", "hard_exit", "logging_level")
Files = dict[str, str | None]


def habits() -> dict[str, list[str]]:
    """The lines of each habit, as real gloo gave them."""
    lines: dict[str, list[str]] = {}
    with open(PROGRAMS / "k_habits.tsv", newline="") as file:
        for habit, line in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            lines.setdefault(habit, []).append(line)
    return lines


HABITS = habits()


def results(done: Done) -> list[str]:
    """Every `RESULT ...`; real processes may write two into one line."""
    return sorted(found.strip() for found in re.findall(r"RESULT.*?(?=RESULT|\n|$)", done.out))


def files(folder: pathlib.Path) -> Files:
    """What the program wrote; the contents of what is text."""
    found: Files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix not in (".lock", ".pyc"):
            text = path.suffix in (".csv", ".txt", ".yaml")
            found[str(path.relative_to(folder))] = path.read_text() if text else None
    return found


def judged(argv: list[str], work: pathlib.Path) -> tuple[Done, Files]:
    """Runs in a working folder of its own. Temporary files stay out of it, and paths of sockets must be short."""
    work.mkdir()
    with tempfile.TemporaryDirectory(prefix="ar") as temporary:
        done = go(argv, work, env=environment(TMPDIR=temporary), limit=LIMIT)
    return done, files(work)


def ours(folder: pathlib.Path, script: str, args: list[str], world: int) -> tuple[Done, Files]:
    command = [*allranks(), "run", "-n", str(world), str(PROGRAMS / script), *args]
    done, made = judged(command, folder / "allranks")
    assert done.status is not None, f"no answer in time\n{done.err}"
    return done, made


def oracle(folder: pathlib.Path, script: str, args: list[str], world: int) -> tuple[Done, Files]:
    return judged([*torchrun(world), str(PROGRAMS / script), *args], folder / "torchrun")


def compare(folder: pathlib.Path, script: str, args: list[str], world: int) -> None:
    (got, made), (want, wanted) = ours(folder, script, args, world), oracle(folder, script, args, world)
    assert results(got) == results(want), got.err
    assert results(got), "a program without a result shows nothing"
    assert got.status == want.status, got.err
    assert made == wanted


@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT)
@pytest.mark.parametrize("name", TRAININGS)
def test_trainings_give_the_same_numbers_and_files(name: str, tmp_path: pathlib.Path) -> None:
    compare(tmp_path, *TRAININGS[name])


@pytest.mark.parametrize("habit", LIVE)
def test_processes_live_and_end_alike(habit: str, tmp_path: pathlib.Path) -> None:
    compare(tmp_path, "k_habits.py", [habit], 2)


@pytest.mark.oldest
@pytest.mark.parametrize("habit", [habit for habit in HABITS if habit not in LIVE])
def test_habits_of_ordinary_programs(habit: str, tmp_path: pathlib.Path) -> None:
    done, made = ours(tmp_path, "k_habits.py", [habit], 2)
    assert results(done) == HABITS[habit], done.err
    assert done.status == 0, done.err
    assert not made
