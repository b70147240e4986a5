"""The command `allranks`."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import allranks
from allranks import _allranks

_BEGIN = time.monotonic()
USAGE = 2
OLDEST_TORCH = (2, 14)


def main(argv: Sequence[str] | None = None) -> int:
    """Does what the command line says and returns the exit status."""
    allranks._stop_registering()
    words = ["allranks", *(sys.argv[1:] if argv is None else argv)]
    plan = _allranks.parse(words)
    if isinstance(plan, int):
        return plan
    if not _torch_is_there():
        return USAGE
    if plan.on is not None:
        return _real_processes(plan)
    if not plan.allow_launcher and (refusal := _allranks.launch_refusal()):
        _allranks.print_error(refusal)
        return USAGE
    return _run(plan)


def _torch_is_there() -> bool:
    if importlib.util.find_spec("torch") is None:
        _allranks.print_error("PyTorch is not installed", hint="pip install torch")
        return False
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("torch")
        numbers = tuple(int(part) for part in found.split("+")[0].split(".")[:2])
    except (PackageNotFoundError, ValueError):
        return True  # Built by hand: it may well work.
    if numbers < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        _allranks.print_error(f"PyTorch {found} is too old", hint=f"allranks needs {oldest} or newer")
        return False
    return True


def _real_processes(plan: Any) -> int:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(plan.world_size)]
    command += ["-m", plan.module] if plan.module is not None else [os.fspath(plan.script)]
    command += map(os.fspath, plan.args)
    sys.stdout.flush()
    os.execv(sys.executable, command)


def _run(plan: Any) -> int:
    from allranks import script

    _drop_own_path()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # Before torch is imported: torchrun does the same.
    try:
        program = script.load(plan.script, plan.module, plan.args)
    except script.CannotRun as error:
        _allranks.print_error(str(error), hint=error.hint)
        return USAGE
    except Exception as error:  # What compiling raises: the program's fault, shown as Python shows it.
        sys.__excepthook__(type(error), error.with_traceback(None), None)
        return 1
    from allranks import launch

    if plan.rank is not None:
        return _finish_one_rank(plan, launch.run_one_rank(plan, lambda _rank: program.run_main()))
    try:
        outcome = launch.run_all_ranks(plan, lambda _rank: program.run_main())
    except launch.TooManyRanks as error:
        _allranks.print_error(str(error), hint="a smaller -n or higher limits (ulimit -u, -v); --rank R runs one alone")
        return _leave(USAGE)
    return _finish(plan, outcome)


def _drop_own_path() -> None:
    """`sys.path[0]` is the folder of our own command; the program gets its own."""
    if getattr(sys.flags, "safe_path", False) or not sys.path:
        return
    started_by = sys.argv[0] if sys.argv else ""
    if sys.path[0] in ("", os.getcwd()) or sys.path[0] == os.path.dirname(os.path.realpath(started_by)):
        del sys.path[0]


def _finish(plan: Any, outcome: Any) -> int:
    """The exit status; also ends the process where threads are left that would keep the interpreter."""
    failed = any(result.status for result in outcome.ranks)
    status = _allranks.conclude(outcome.world, plan, time.monotonic() - _BEGIN, rank_failed=failed)
    return _leave(130 if outcome.interrupted else status)


def _finish_one_rank(plan: Any, result: Any) -> int:
    from allranks import failures, one_rank

    failure = None
    if result.error is not None:
        failure = (*failures.place_of(result.error), f"{type(result.error).__name__}: {result.error}")
    elif result.status:
        failure = (None, 0, "", f"exited with status {result.status}")
    seconds = time.monotonic() - _BEGIN
    status: int = _allranks.conclude_one_rank(plan, seconds, *one_rank.summary(), failure)
    return status


def _leave(status: int) -> int:
    """Ends the process: threads of ranks may stand anywhere, and the interpreter must not wait for them."""
    import atexit

    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            status = status or 120  # As Python has it.
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
