"""What the user got wrong: one clear line, a hint, the right status; no traceback of ours and nothing left behind."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import allranks as package
import pytest
from run_support import Done, allranks, environment, go, start, torchrun

HEAD = "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\nrank = dist.get_rank()\n"
FINE = HEAD + "dist.barrier()\nprint('done', flush=True)\n"


def usage(done: Done, *words: str, status: int = 2) -> None:
    """One line that says what is wrong, one that helps."""
    assert done.status == status, done.err
    lines = done.err.splitlines()
    assert len(lines) == 2, done.err
    assert lines[0].startswith("allranks: error: ") and lines[1].startswith("hint: "), done.err
    for word in words:
        assert word in done.err
    assert not done.out


def left(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "__pycache__")


def command(folder: pathlib.Path, *words: str, program: str | None = FINE, **extra: str) -> Done:
    if program is not None:
        (folder / "x.py").write_text(program)
    before = left(folder)
    done = go([*allranks(), "run", *words], folder, env=environment(**extra))
    assert left(folder) == before, "nothing is left behind"
    return done


@pytest.mark.oldest
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-n 0 x.py", ["0 ranks"]),
        ("-n -3 x.py", ["-n", "-3"]),
        ("-n many x.py", ["-n", "many"]),
        ("-n 4 --rank 4 x.py", ["rank 4", "ranks are 0 to 3"]),
        ("-n 4 --rank -1 x.py", ["--rank", "-1"]),
        ("-n 2 missing.py", ["no such script: missing.py"]),
        ("-n 2 -m missing.module", ["missing"]),
        ("-n 2", ["nothing to run"]),
        ("--nproc-per-node 2 x.py", ["unknown option --nproc-per-node", "did you mean -n?"]),
        ("--sede 3 x.py", ["unknown option --sede", "did you mean --seed?"]),
        ("-n 2 --findings no/such/folder x.py", ["cannot write findings"]),
        ("-n 1000000 x.py", ["1000000 ranks", "GiB", "--rank"]),
    ],
)
def test_command_lines(line: str, words: list[str], tmp_path: pathlib.Path) -> None:
    usage(command(tmp_path, *line.split()), *words)


def test_a_syntax_error_is_the_programs(tmp_path: pathlib.Path) -> None:
    done = command(tmp_path, "-n", "2", "x.py", program="def f(:\n    pass\n")
    assert done.status == 1
    assert "SyntaxError" in done.err and "x.py" in done.err and "def f(:" in done.err
    assert "allranks/" not in done.err and done.err.count("SyntaxError") == 1


def without_torch(folder: pathlib.Path, found: str | None) -> Done:
    """The command on an interpreter that finds allranks and, if `found`, the metadata of that torch."""
    parts = folder / "site"
    parts.mkdir()
    (parts / "allranks").symlink_to(pathlib.Path(package.__file__).parent, target_is_directory=True)
    if found is not None:
        (parts / "torch.py").write_text("raise AssertionError('a torch that is too old is not imported')\n")
        (parts / f"torch-{found}.dist-info").mkdir()
        (parts / f"torch-{found}.dist-info" / "METADATA").write_text(f"Name: torch\nVersion: {found}\n")
    (folder / "x.py").write_text(FINE)
    code = f"import sys; sys.path.insert(0, {str(parts)!r}); from allranks._cli import main; sys.exit(main())"
    return go([sys.executable, "-I", "-S", "-B", "-c", code, "run", "-n", "2", "x.py"], folder)


def test_no_torch(tmp_path: pathlib.Path) -> None:
    usage(without_torch(tmp_path, None), "PyTorch is not installed", "pip install torch")


def test_an_old_torch(tmp_path: pathlib.Path) -> None:
    usage(without_torch(tmp_path, "2.9.1"), "PyTorch 2.9.1 is too old", "2.14")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of address space")
def test_no_thread_for_every_rank(tmp_path: pathlib.Path) -> None:
    (tmp_path / "x.py").write_text(FINE)
    limited = ["sh", "-c", 'ulimit -v 6000000; exec "$@"', "sh", *allranks(), "run", "-n", "2000", "x.py"]
    done = go(limited, tmp_path)
    assert done.status == 2, done.err
    ours = [line for line in done.err.splitlines() if line.startswith(("allranks", "hint"))]
    assert "no thread to rank" in ours[0] and "smaller -n" in ours[1]
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "variables",
    [
        {"SLURM_PROCID": "1", "SLURM_NTASKS": "4"},
        {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "1"},
        {"PMI_SIZE": "2", "PMI_RANK": "0"},
    ],
)
def test_a_launch_of_many_processes_is_refused(variables: dict[str, str], tmp_path: pathlib.Path) -> None:
    done = command(tmp_path, "-n", "2", "x.py", **variables)
    usage(done, "refused", "--allow-launcher")


def test_under_torchrun(tmp_path: pathlib.Path) -> None:
    (tmp_path / "x.py").write_text(FINE)
    under = [*torchrun(2), "-m", "allranks", "run", "-n", "2"]
    refused = go([*under, "x.py"], tmp_path)
    assert refused.status != 0 and "done" not in refused.out
    assert refused.err.count("allranks: error: refused: this process is one of 2 that torchrun started") >= 1
    allowed = go([*under, "--allow-launcher", "x.py"], tmp_path)
    assert allowed.status == 0, allowed.err
    assert allowed.out.count("done") == 4, "two processes, each with two ranks of its own"


@pytest.mark.oldest
@pytest.mark.parametrize(
    ("program", "status"),
    [
        (FINE, 0),
        (HEAD + "if rank == 1: raise ValueError('mine')\ndist.barrier()\n", 1),
        (HEAD + "import sys; sys.exit(7 if rank == 1 else 0)\n", 1),
        (HEAD + "if rank == 0: dist.barrier()\n", 3),
    ],
    ids=["clean", "raises", "exits", "error-finding"],
)
def test_exit_statuses(program: str, status: int, tmp_path: pathlib.Path) -> None:
    done = command(tmp_path, "-n", "2", "x.py", program=program)
    assert done.status == status, done.err
    assert ("reproduce: " in done.err) == (status != 0)
    assert not re.search(r'File ".*/allranks/', done.err), "no traceback of ours"


def interrupted(folder: pathlib.Path, program: str) -> tuple[float, int, str]:
    """Seconds that Ctrl-C takes once the program says that it is there, the status, and what was said."""
    (folder / "x.py").write_text(program)
    process = start([*allranks(), "run", "-n", "2", "--watchdog", "0", "x.py"], folder)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    time.sleep(0.3)  # So that it stands where it will stand.
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    try:
        _, err = process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    seconds = time.monotonic() - begin
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
    return seconds, process.returncode, err.decode()


@pytest.mark.oldest
@pytest.mark.parametrize(
    "stuck",
    [
        "while True: pass\n",
        "if rank == 1: dist.barrier()\nelse:\n    import time\n    time.sleep(60)\n",
        "import time\ntime.sleep(60)\n",
        "while True:\n    try: dist.barrier()\n    except Exception: pass\n",
    ],
    ids=["spins", "collective", "sleeps", "swallows"],
)
def test_ctrl_c_ends_in_under_a_second(stuck: str, tmp_path: pathlib.Path) -> None:
    program = HEAD + "print('ready', flush=True)\n" + stuck  # A rank that spins lets no other come that far.
    attempts = []
    for _ in range(3):  # A busy machine may take its time once.
        seconds, status, said = interrupted(tmp_path, program)
        attempts.append(seconds)
        assert status == 130, said
        assert "x.py" in said, "where the ranks stood"
        assert not re.search(r'File ".*/allranks/', said), said
        if seconds < 1:
            return
    raise AssertionError(f"took {attempts} seconds")
