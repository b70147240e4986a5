"""Do the tests notice when an operation is wrong? Makes each one wrong on purpose and looks which test fails.

    python scripts/mutants.py [--jobs N] [--list] [MUTANT ...]

Builds the extension module with the feature `mutants` (a debug build: the feature refuses release builds) into a copy
of the package of its own, then runs the project's own tests under every mutant: those of the engine's Rust face where
it has the operation, and those in Python, each until the first one fails. `crates/engine/src/mutants.rs` says what a
mutant changes. A mutant is `CHANGE:OPERATION`; a part of the name selects several.

Exit status: 0 if every mutant is killed, 1 if one survives or the tests fail without any, 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PACKAGES = TARGET / "mutants" / "python"
VARIABLE = "ALLRANKS_MUTANT"
TESTS = ROOT / "tests" / "python"

REDUCTIONS = (
    "all_reduce all_reduce_coalesced all_reduce_sparse reduce reduce_scatter reduce_scatter_tensor "
    "reduce_scatter_coalesced"
).split()
COPIES = (
    "broadcast all_gather all_gather_into_tensor all_gather_coalesced gather scatter all_to_all all_to_all_single send"
).split()
#: Only one member has a result, so "the first" is no other mutant.
ONE_RESULT = ("reduce", "gather", "send")
#: Every copy is from the one root, or there is one copy only.
ONE_SOURCE = ("broadcast", "send")
#: What the engine's Rust face can do; its tests must notice by themselves.
RUST_FACE = "all_reduce reduce broadcast all_gather_into_tensor reduce_scatter_tensor all_to_all_single send".split()
#: What one-rank mode fills in.
ONE_RANK = [k for k in REDUCTIONS if k != "all_reduce_sparse"] + [k for k in COPIES if k != "send"] + ["recv"]


def mutants() -> list[str]:
    """All that differ from each other."""
    found = []
    for kind in REDUCTIONS + COPIES:
        changes = ["last", "first", "large", "nothing"]
        if kind not in ONE_RESULT:
            changes += ["first-rank", "last-rank"]
        if kind in REDUCTIONS:
            changes.append("order")
        elif kind not in ONE_SOURCE:
            changes.append("source")
        found += [f"{change}:{kind}" for change in changes]
    found.append("nothing:staging")
    return found + [f"{change}:one-rank/{kind}" for kind in ONE_RANK for change in ("last", "first", "nothing")]


# --- what is run


def cargo(*words: str) -> list[str]:
    return ["cargo", *words, "--quiet", "--features", "mutants"]


def rust_tests() -> list[str]:
    """Builds the engine's tests; the programs that run them."""
    command = [*cargo("test", "--package", "allranks-engine", "--tests", "--no-run"), "--message-format=json"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    return [m["executable"] for m in messages if m.get("executable") and m["profile"]["test"]]


def build() -> None:
    """The package with an extension module that knows mutants."""
    subprocess.run(cargo("build", "--package", "allranks-py"), cwd=ROOT, check=True)
    library = next(p for p in (TARGET / "debug").glob("*_allranks.*") if p.suffix in (".so", ".dylib", ".dll"))
    package = PACKAGES / "allranks"
    shutil.rmtree(package, ignore_errors=True)
    kept = shutil.ignore_patterns("__pycache__", "_allranks.*.so", "_allranks.pyd")
    shutil.copytree(ROOT / "python" / "allranks", package, ignore=kept)
    shutil.copy2(library, package / ("_allranks.pyd" if library.suffix == ".dll" else "_allranks.abi3.so"))


def in_rust(programs: Iterable[str], env: dict[str, str]) -> str | None:
    """The first test of the engine that fails."""
    for program in programs:
        done = subprocess.run([program, "--quiet"], cwd=ROOT, env=env, capture_output=True, text=True)
        if done.returncode:
            return next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("---- "))
    return None


class _Recorder:
    """Notes the first test that fails."""

    def __init__(self) -> None:
        self.failed: str | None = None

    def pytest_runtest_logreport(self, report: object) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid.removeprefix("tests/python/")


def in_python(*arguments: str) -> str | None:
    """The first test that fails, in this process; it has imported torch already."""
    import pytest

    recorder = _Recorder()
    words = ["-x", "-q", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider"]
    status = pytest.main([*words, *arguments], plugins=[recorder])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise RuntimeError(f"pytest {' '.join(arguments)} ended with {status!r}")
    return recorder.failed


def stages(mutant: str) -> list[tuple[str, ...]]:
    """Which tests of the Python side to run, the likeliest first."""
    change, _, operation = mutant.partition(":")
    if operation.startswith("one-rank/"):
        return [(str(TESTS / "test_one_rank_rules.py"), str(TESTS / "test_one_rank_backend.py"))]
    values, parity = str(TESTS / "test_values.py"), f"{TESTS / 'test_parity_gloo.py'}::test_bits"
    if change == "order":  # Sums of whole numbers do not tell.
        return [(parity,)]
    return [(values, "-k", "strided" if operation == "staging" else operation), (values,), (parity,)]


# --- one process a mutant


def has_rust_test(mutant: str) -> bool:
    """Orders of reduction are tested in the crate that makes them, not in the engine."""
    change, _, operation = mutant.partition(":")
    return operation in RUST_FACE and change != "order"


@dataclass
class Verdict:
    """Which test noticed; None: none did, or (in Rust) there is none to ask."""

    mutant: str
    rust: str | None = None
    python: str | None = None
    error: str | None = None

    @property
    def survived(self) -> bool:
        return self.python is None or (self.rust is None and has_rust_test(self.mutant))


def judge(mutant: str, programs: list[str]) -> Verdict:
    """In a child process, under the mutant."""
    os.environ[VARIABLE] = mutant
    verdict = Verdict(mutant)
    if has_rust_test(mutant):
        verdict.rust = in_rust(programs, dict(os.environ))
    for stage in stages(mutant):
        verdict.python = in_python(*stage)
        if verdict.python:
            break
    return verdict


def forked(mutant: str, programs: list[str], folder: pathlib.Path) -> int:
    """Starts a child that leaves its verdict in a file."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    with open(folder / f"{mutant.replace('/', '-')}.log", "w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            verdict = judge(mutant, programs)
        except BaseException as error:
            verdict = Verdict(mutant, error=repr(error))
        (folder / str(os.getpid())).write_text(json.dumps(vars(verdict)))
        sys.stdout.flush()
    os._exit(0)


def judge_all(names: list[str], programs: list[str], jobs: int) -> list[Verdict]:
    """Some at a time; prints each verdict as it comes."""
    queue = list(names)
    running: dict[int, str] = {}
    verdicts: dict[str, Verdict] = {}
    with tempfile.TemporaryDirectory(prefix="mutants") as name:
        folder = pathlib.Path(name)
        while queue or running:
            while queue and len(running) < jobs:
                mutant = queue.pop(0)
                running[forked(mutant, programs, folder)] = mutant
            pid, _ = os.wait()
            mutant = running.pop(pid)
            try:
                verdict = Verdict(**json.loads((folder / str(pid)).read_text()))
            except FileNotFoundError:
                verdict = Verdict(mutant, error="the process died")
            verdicts[mutant] = verdict
            show(verdict)
            if verdict.error:
                print((folder / f"{mutant.replace('/', '-')}.log").read_text()[-2000:])
    return [verdicts[mutant] for mutant in names]


def show(verdict: Verdict) -> None:
    if verdict.error:
        print(f"{verdict.mutant:42} ERROR {verdict.error}", flush=True)
        return
    rust = verdict.rust or ("SURVIVED" if has_rust_test(verdict.mutant) else "-")
    print(f"{verdict.mutant:42} {rust:40} {verdict.python or 'SURVIVED'}", flush=True)


def sound(programs: list[str]) -> bool:
    """Whether the tests pass without a mutant: otherwise their failing says nothing."""
    os.environ.pop(VARIABLE, None)
    if failed := in_rust(programs, dict(os.environ)):
        print(f"without any mutant, {failed} fails")
        return False
    files = {word for mutant in mutants() for stage in stages(mutant) for word in stage if word.startswith("/")}
    with tempfile.TemporaryFile("w+") as log, contextlib.redirect_stdout(log):
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", *sorted(files)], cwd=ROOT, capture_output=True)
    if done.returncode:
        print(f"without any mutant, the tests fail:\n{done.stdout.decode()[-3000:]}")
    return not done.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("mutants", nargs="*", metavar="MUTANT", help="a mutant, or a part of its name; none: all")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (default: 2)")
    parser.add_argument("--list", action="store_true", help="only print their names")
    options = parser.parse_args()
    names = [m for m in mutants() if not options.mutants or any(part in m for part in options.mutants)]
    if not names:
        parser.error(f"no mutant is named like {' '.join(options.mutants)}; --list names them")
    if options.list:
        print("\n".join(names))
        return 0
    begin = time.monotonic()
    build()
    programs = rust_tests()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])])
    sys.path[:0] = [str(PACKAGES), str(TESTS)]
    print(f"built in {time.monotonic() - begin:.0f} s", flush=True)
    if not sound(programs):
        return 1
    print(f"{'mutant':42} {'killed in Rust by':40} killed in Python by", flush=True)

    # Once for all: children are forks.
    import allranks
    import hypothesis  # noqa: F401
    import torch.distributed.tensor  # noqa: F401

    assert pathlib.Path(allranks.__file__).is_relative_to(PACKAGES)
    verdicts = judge_all(names, programs, options.jobs)
    bad = [v.mutant for v in verdicts if v.survived or v.error]
    print(
        f"{len(verdicts) - len(bad)} of {len(verdicts)} mutants killed in {time.monotonic() - begin:.0f} s", flush=True
    )
    if bad:
        print(f"not killed: {' '.join(bad)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
