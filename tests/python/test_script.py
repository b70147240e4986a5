"""A program runs as Python would run it, and ends as Python would end it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "import sys; from allranks._cli import main; sys.exit(main())", "run", "-q", "-n", "2"]
ENDS = """
import os, sys, threading
rank, how = os.environ["RANK"], sys.argv[1]
def act():
    if how == "status" and rank == "1": sys.exit(3)
    if how == "message": sys.exit("bye " + rank)
    if how == "raise": raise ValueError("all of us")
    if how == "hook":
        sys.excepthook = lambda kind, error, tb: print("HOOK", rank, error, flush=True)
        raise ValueError("mine")
    if how == "hard" and rank == "1": os._exit(5)
    if how == "debugger": breakpoint()
act()
print("end", rank, flush=True)
"""


def run(folder: Path, *words: str, input: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=60, cwd=folder, input=input)


@pytest.fixture
def ends(tmp_path: Path) -> Path:
    (tmp_path / "ends.py").write_text(ENDS)
    return tmp_path


def test_module_with_a_collective_in_its_package(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    (package / "sub").mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import torch.distributed as dist\ndist.init_process_group('gloo')\ndist.barrier()\nRANK = dist.get_rank()\n"
    )
    (package / "sub" / "__init__.py").write_text("from .. import RANK\nVALUE = RANK * 10\n")
    (package / "__main__.py").write_text(
        "import sys\nfrom .sub import VALUE\n"
        "print(VALUE, __name__, __package__, __spec__.name, sys.argv[0].endswith('__main__.py'), sys.argv[1:])\n"
    )
    done = run(tmp_path, "-m", "pkg", "a", "-b")
    wanted = [f"{v} __main__ pkg pkg.__main__ True ['a', '-b']" for v in (0, 10)]
    assert sorted(done.stdout.splitlines()) == wanted, done.stderr


def test_folder_and_module_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "helper.py").write_text("import os\nRANK = os.environ['RANK']\n")
    (tmp_path / "app" / "__main__.py").write_text("import helper\nprint(helper.RANK, __name__, repr(__package__))\n")
    done = run(tmp_path, "app")
    assert sorted(done.stdout.splitlines()) == [f"{r} __main__ ''" for r in range(2)], done.stderr


def test_syntax_error(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("x = (\n")
    done = run(tmp_path, "wrong.py")
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == f'  File "{tmp_path}/wrong.py", line 1'
    assert "SyntaxError: '(' was never closed" in done.stderr


@pytest.mark.parametrize("words", [["missing.py"], ["-m", "missing"]])
def test_missing_program(tmp_path: Path, words: list[str]) -> None:
    done = run(tmp_path, *words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr and "hint: " in done.stderr


@pytest.mark.parametrize(
    ("how", "printed", "said"),
    [
        ("status", ["end 0"], "exited with status 3"),
        ("message", [], "bye 0"),
        ("raise", [], "[rank1]: the same traceback as rank 0: ValueError: all of us"),
        ("hook", ["HOOK 0 mine", "HOOK 1 mine"], "ValueError: mine"),
        ("hard", ["end 0"], "os._exit(5)"),
    ],
)
def test_ends(ends: Path, how: str, printed: list[str], said: str) -> None:
    done = run(ends, "ends.py", how)
    assert done.returncode == 1
    assert sorted(done.stdout.splitlines()) == printed
    assert said in done.stderr
    assert "allranks/launch.py" not in done.stderr


def test_breakpoint_names_the_rank_and_keeps_the_baton(ends: Path) -> None:
    done = run(ends, "ends.py", "debugger", input="p 'first ' + rank\nc\np 'second ' + rank\nc\n")
    assert done.returncode == 0, done.stderr
    order = [
        done.stdout.index(text) for text in ("(rank 0 Pdb) 'first 0'", "end 0", "(rank 1 Pdb) 'second 1'", "end 1")
    ]
    assert order == sorted(order)


def test_post_mortem(ends: Path) -> None:
    done = run(ends, "--pdb", "ends.py", "raise", input="p 'at ' + how\nq\n")
    assert done.returncode == 1
    assert "(rank 0 Pdb) 'at raise'" in done.stdout


SPIN = """
import os, time
import torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 0:
    print("spins", flush=True)
    began = time.time()
    while time.time() - began < float(os.environ["SPIN"]):
        pass
dist.barrier()
"""


def test_watchdog_names_who_spins_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "spin.py").write_text(SPIN)
    done = subprocess.run(
        [*COMMAND, "--watchdog", "0.5", "spin.py"], capture_output=True, text=True, timeout=60, cwd=tmp_path,
        env={**os.environ, "SPIN": "2"},
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr.count("warning: rank 0 has run for 0.5 s without waiting") in (1, 2)
    assert "spin.py" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="sends a POSIX signal")
def test_interrupt(tmp_path: Path) -> None:
    (tmp_path / "spin.py").write_text(SPIN)
    process = subprocess.Popen(
        [*COMMAND, "spin.py"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env={**os.environ, "SPIN": "60"},
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "spins\n"
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert time.monotonic() - began < 2  # Under a second where the machine is free.
    assert "rank 0: " in said and "spin.py:" in said and "rank 1: " in said
