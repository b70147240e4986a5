"""`pytest --allranks`: torch's own test bases, with their real processes as the oracle."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

import allranks
import pytest
import torch
from allranks.testing.dropin.idle import Idle
from plugin_support import PLUGIN

pytestmark = [pytest.mark.oldest, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
BASES = Path(__file__).parent / "dropin_programs" / "suite_of_bases.py"
SUITE = ROOT / "tests" / "torch_suites" / "distributed_suite.py"


@dataclass
class Ended:
    """A run of pytest."""

    text: str
    #: By test: how it ended, and the message of a skip or a failure.
    outcomes: dict[str, tuple[str, str]]
    #: Its process group, where nothing should be left.
    group: int


def run_pytest(folder: Path, *arguments: str, together: bool = True, **environment: str) -> Ended:
    report = folder / ("together.xml" if together else "spawned.xml")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={folder}"]
    command += [*PLUGIN, f"--junitxml={report}", *arguments]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    for name in [name for name in env if name.startswith(("PYTEST_", "ALLRANKS"))]:
        del env[name]
    if together:
        env["ALLRANKS"] = "1"
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    text, _ = process.communicate()
    return Ended(text, outcomes_of(report) if report.exists() else {}, process.pid)


def outcomes_of(report: Path) -> dict[str, tuple[str, str]]:
    found = {}
    for case in ET.parse(report).iter("testcase"):
        inner = [child for child in case if child.tag in ("failure", "error", "skipped")]
        ending = (inner[0].tag, message_of(inner[0])) if inner else ("passed", "")
        found[f"{case.get('classname', '').rsplit('.', 1)[-1]}::{case.get('name')}"] = ending
    return found


def message_of(element: ET.Element) -> str:
    """What is the same in every run: no pids, paths, lines, times."""
    text = element.get("message", "")
    if element.tag == "failure":
        raised = re.findall(r"^(?:E +)?(\w+Error): ", text, re.MULTILINE)
        codes = re.findall(r"exit code \d+ but got -?\d+", text)
        return f"{raised[0] if raised else text[:40]} {codes}"
    return text


def nobody_left(group: int) -> bool:
    """Real processes are followed by a tracker of multiprocessing, which ends when it notices."""
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return run_pytest(tmp_path_factory.mktemp("together"), str(BASES))


def test_every_base_runs_in_one_process(together: Ended) -> None:
    assert "all ranks in one process: 20 tests; as processes: 1\n" in together.text
    listed = re.findall(r"ran as processes: .*::(\w+): (.*)", together.text)
    assert listed == [("test_kills_itself", "rank 0 is ended by SIGKILL")]


def test_failures_say_what_ranks_raised(together: Ended) -> None:
    for text in (
        "Process 1 exited with error code 10 and exception:",
        "ValueError: rank 0 raises",
        "ValueError: rank 1 raises",
        "Exception in worker process:",
        "Thread 1 exited with exception:",
    ):
        assert text in together.text
    assert together.outcomes["TestThreads::test_fails"][0] == "failure"


def test_nothing_is_left_behind(together: Ended) -> None:
    assert nobody_left(together.group)


@pytest.mark.slow
def test_outcomes_are_those_of_real_processes(together: Ended, tmp_path: Path) -> None:
    spawned = run_pytest(tmp_path, str(BASES), together=False)
    assert together.outcomes == spawned.outcomes


def test_some_of_torchs_own_tests(tmp_path: Path) -> None:
    names = "test_all_reduce_sum or test_isend_torch_profiler or test_ddp_logging_data_cpu"
    ended = run_pytest(tmp_path, str(SUITE), "-k", names, BACKEND="gloo", WORLD_SIZE="4")
    wanted = {
        "test_all_reduce_sum": "passed",
        "test_all_reduce_sum_async": "passed",
        "test_all_reduce_sum_complex": "passed",
        "test_all_reduce_sum_cuda": "skipped",
        "test_ddp_logging_data_cpu": "passed",
        "test_isend_torch_profiler": "passed",
    }
    found = {name.split("::")[1]: how for name, (how, _) in ended.outcomes.items()}
    assert {name: found.get(name) for name in wanted} == wanted, ended.text
    assert "as processes: 0" in ended.text


@pytest.mark.slow
@pytest.mark.skipif(torch.__version__ < "2.15", reason="the list is that of torch 2.15")
@pytest.mark.parametrize("order", ["listed", "reversed", "shuffled"])
def test_what_gloo_passes_of_torchs_own_tests(order: str, tmp_path: Path) -> None:
    """The list is of a run with a process a rank; what of it needs a GPU or another backend is not in it."""
    names = (SUITE.parent / "passed_world4.txt").read_text().split()
    if order != "listed":
        names.reverse()
    if order == "shuffled":
        random.Random(7).shuffle(names)
    tests = [f"{SUITE}::TestDistBackendWithSpawn::{name}" for name in names]
    ended = run_pytest(tmp_path, *tests, BACKEND="gloo", WORLD_SIZE="4")
    assert {name.split("::")[1]: how for name, (how, _) in ended.outcomes.items()} == dict.fromkeys(names, "passed")
    assert f"all ranks in one process: {len(names)} tests; as processes: 0" in ended.text


UGLY = """
import ctypes, os, threading, time
import torch
import torch.distributed as dist
from torch.testing._internal import common_distributed as base

base.TIMEOUT_OVERRIDE["test_b_hangs"] = 2


class TestUgly(base.MultiProcessTestCase):
    world_size = 2

    def setUp(self):
        super().setUp()
        self._spawn_processes()

    def test_a_deadlock(self):
        dist.init_process_group("gloo", rank=self.rank, world_size=2, store=dist.FileStore(self.file_name, 2))
        if self.rank == 0:
            dist.all_reduce(torch.ones(1))

    def test_b_hangs(self):
        while True:
            pass

    def test_c_crashes(self):
        if self.rank == 0:
            ctypes.string_at(0)

    def test_d_goes_on(self):
        pass


class TestDescriptors(base.MultiProcessTestCase):
    world_size = 2
    counts = []

    def setUp(self):
        super().setUp()
        self.counts.append(len(os.listdir("/proc/self/fd")))
        self._spawn_processes()


for number in range(12):
    setattr(TestDescriptors, f"test_{number:02}", lambda self: None)


def test_z_no_descriptor_is_lost():
    assert TestDescriptors.counts[-1] == TestDescriptors.counts[3], TestDescriptors.counts
"""


def test_a_test_that_ends_badly_costs_that_test(tmp_path: Path) -> None:
    (tmp_path / "test_ugly.py").write_text(UGLY)
    ended = run_pytest(tmp_path, "test_ugly.py", "-n2", "--dist=loadfile")
    how = {name: found for name, (found, _) in ended.outcomes.items()}
    assert how.pop("TestUgly::test_a_deadlock") == "failure"
    assert how.pop("TestUgly::test_b_hangs") == "failure"
    assert how.pop("TestUgly::test_c_crashes") == "failure"
    assert set(how.values()) == {"passed"} and len(how) == 14, ended.text
    assert re.search(r"Process \d terminated or timed out after", ended.text)
    assert "test_c_crashes: the process of all ranks ended with SIGSEGV" in ended.text
    assert nobody_left(ended.group)


REGISTERING = """
import torch
import torch.distributed as dist
from torch.testing._internal.common_distributed import MultiProcessTestCase

LIBRARY = torch.library.Library("a_test_module", "DEF")
LIBRARY.define("twice(Tensor x) -> Tensor")
LIBRARY.impl("twice", lambda x: 2 * x, "CompositeExplicitAutograd")
torch._decomp.register_decomposition(torch.ops.a_test_module.twice.default)(lambda x: x + x)

@torch.library.custom_op("a_test_module::custom", mutates_args=())
def custom(x: torch.Tensor) -> torch.Tensor:
    return x + 1

real = dist.get_rank
dist.get_rank = lambda *args: real(*args) + 100

class Registering(MultiProcessTestCase):
    world_size = 2

    def setUp(self):
        super().setUp()
        self._spawn_processes()

    def test_each_rank_registers(self):
        dist.init_process_group(
            "gloo", rank=self.rank, world_size=2, store=dist.FileStore(self.file_name, 2)
        )
        x = torch.tensor([float(self.rank)])
        dist.all_reduce(x)
        self.assertEqual(torch.ops.a_test_module.twice(custom(x)).item(), 4.0)
        self.assertEqual(dist.get_rank(), self.rank + 100)
"""


def test_what_a_module_registers_when_it_is_collected_is_not_in_the_ranks_way(tmp_path: Path) -> None:
    (tmp_path / "test_registering.py").write_text(REGISTERING)
    ended = run_pytest(tmp_path, "test_registering.py")
    assert set(ended.outcomes.values()) == {("passed", "")}, ended.text
    assert "all ranks in one process: 1 test" in ended.text


THREADS = """
import threading

import torch.distributed as dist
from torch.testing._internal.common_distributed import MultiProcessTestCase, MultiThreadedTestCase


class TestThreads(MultiThreadedTestCase):
    world_size = 3

    def setUp(self):
        super().setUp()
        self._spawn_threads()

    def test_deadlock(self):
        if self.rank:
            dist.barrier()

    def test_fine(self):
        dist.barrier()


class TestProcesses(MultiProcessTestCase):
    world_size = 2

    def setUp(self):
        super().setUp()
        self._spawn_processes()

    def test_thread_left(self):
        threading.Thread(target=threading.Event().wait).start()
"""


def test_a_rank_that_cannot_go_on_did_not_pass(tmp_path: Path) -> None:
    """Torch's base catches whatever ends a rank; and a rank whose thread never ends has not ended."""
    (tmp_path / "test_threads.py").write_text(THREADS)
    ended = run_pytest(tmp_path, "test_threads.py")
    assert {name: how for name, (how, _) in ended.outcomes.items()} == {
        "TestThreads::test_deadlock": "failure",
        "TestThreads::test_fine": "passed",
        "TestProcesses::test_thread_left": "failure",
    }
    assert "error[deadlock-cycle]" in ended.text


def test_work_that_comes_before_the_last_rank_asks_for_it() -> None:
    """pytest may send the next test before the last rank waits for it: those that wait already must hear of it."""
    pipes = [os.pipe() for _ in range(3)]
    idle = Idle(3)

    def work() -> int:
        rank = int(os.environ["RANK"])
        if rank == 1:
            os.write(pipes[1][1], b"x")  # The others' is on its way.
        idle.wait_for(pipes[rank][0])
        if rank == 1:
            for number in (0, 2):
                os.write(pipes[number][1], b"x")
        return len(os.read(pipes[rank][0], 1))

    try:
        assert allranks.run(work, 3) == [1, 1, 1]
    finally:
        for ends in pipes:
            for end in ends:
                os.close(end)
