"""Time-outs: what a rank is told, what follows, and what is found if it dies of that.

`tests/programs/deadlines.expected` is what real gloo printed: the lines of
`torchrun --standalone --nproc-per-node 2 tests/programs/deadlines.py`, sorted by rank.
"""

from __future__ import annotations

import pathlib
import random
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import allranks
import pytest
import torch
import torch.distributed as dist
from run_support import CASES, PROGRAMS, Done, environment, go, rank_lines, run, torchrun
from test_cases import RULES, complaint
from test_cases import cases as all_cases

PROGRAM = PROGRAMS / "deadlines.py"
EXPECTED = PROGRAM.with_suffix(".expected").read_text().splitlines()
CLOCKS = ("real", "virtual")
HALF_HOUR = 1800


@pytest.mark.oldest
@pytest.mark.parametrize("clock", CLOCKS)
def test_ranks_are_told_what_gloo_says(clock: str, tmp_path: pathlib.Path) -> None:
    done = run(PROGRAM, 2, tmp_path, "--clock", clock)
    assert rank_lines(done.out) == EXPECTED
    assert (done.status, done.findings) == (0, []), "the program catches everything"


@pytest.mark.slow
@pytest.mark.oldest
def test_gloo_still_says_so(tmp_path: pathlib.Path) -> None:
    done = go([*torchrun(2), str(PROGRAM)], tmp_path, limit=110)
    assert rank_lines(done.out) == EXPECTED, done.err


# What is found

STALLS = ("101", "118", "123", "126", "140", "143", "146")


@pytest.mark.parametrize("number", STALLS)
def test_who_dies_of_a_default_time_out_gets_the_finding_of_the_stall(number: str, tmp_path: pathlib.Path) -> None:
    case = next(case for case in all_cases("bad") if case.name.startswith(number))
    done = run(CASES / case.name, case.world, tmp_path, "--clock", "virtual")
    assert (why := complaint(case, RULES[case.name], done)) is None, f"{why}\n{done.err}"
    assert done.status in (1, 3)


def script(tmp_path: pathlib.Path, text: str) -> pathlib.Path:
    path = tmp_path / "program.py"
    path.write_text("import torch, torch.distributed as dist\nfrom datetime import timedelta\n" + textwrap.dedent(text))
    return path


def ids(done: Done) -> list[str]:
    return [finding["id"] for finding in done.findings]


CYCLE = """
    dist.init_process_group("gloo"{timeout})
    a, b = dist.new_group({timeout_only}), dist.new_group({timeout_only})
    first, second = (a, b) if dist.get_rank() == 0 else (b, a)
    dist.all_reduce(torch.ones(1), group=first)
    dist.all_reduce(torch.ones(1), group=second)
"""


def test_the_same_finding_with_and_without_a_time_out(tmp_path: pathlib.Path) -> None:
    found = []
    for timeout, clock in (("", "real"), ("timeout=timedelta(seconds=7)", "real"), ("", "virtual")):
        text = CYCLE.format(timeout=f", {timeout}" if timeout else "", timeout_only=timeout)
        done = run(script(tmp_path, text), 2, tmp_path, "--clock", clock)
        assert done.status == 3, done.err
        found.append([(f["id"], f["ranks"], [(p["rank"], p["line"]) for p in f["locations"]]) for f in done.findings])
    assert found[0] == found[1] == found[2]
    assert [finding[0] for finding in found[0]] == ["deadlock-cycle"]


CAUGHT = """
    dist.init_process_group("gloo", timeout=timedelta(seconds=3))
    if dist.get_rank() == 0:
        try:
            dist.all_reduce(torch.ones(1))
        except RuntimeError as error:
            print("caught", error)
    {after}
"""


@pytest.mark.parametrize("clock", CLOCKS)
def test_no_finding_if_the_program_catches_it(clock: str, tmp_path: pathlib.Path) -> None:
    done = run(script(tmp_path, CAUGHT.format(after="print('on')")), 2, tmp_path, "--clock", clock)
    assert (done.status, done.findings) == (0, []), done.err
    assert "Timed out waiting 3000ms" in done.out and done.out.count("on\n") >= 2


def test_who_dies_of_something_else_later_is_told_that(tmp_path: pathlib.Path) -> None:
    after = "if dist.get_rank() == 0: raise ValueError('another matter')"
    done = run(script(tmp_path, CAUGHT.format(after=after)), 2, tmp_path)
    assert ids(done) == ["rank-failed"]
    assert "another matter" in done.findings[0]["headline"]


def test_an_exception_raised_from_it_is_not_something_else(tmp_path: pathlib.Path) -> None:
    text = """
        dist.init_process_group("gloo", timeout=timedelta(seconds=3))
        if dist.get_rank() == 0:
            try:
                dist.all_reduce(torch.ones(1))
            except RuntimeError as error:
                raise SystemError("could not go on") from error
    """
    done = run(script(tmp_path, text), 2, tmp_path)
    assert ids(done) == ["missing-participant"]


def test_only_the_first_cause_is_told(tmp_path: pathlib.Path) -> None:
    text = """
        dist.init_process_group("gloo")
        if dist.get_rank() == 1:
            raise KeyError("first")
        dist.barrier()
    """
    done = run(script(tmp_path, text), 4, tmp_path, "--clock", "virtual")
    assert ids(done) == ["rank-failed"] and done.findings[0]["ranks"] == [1], done.err


def test_a_time_out_of_the_group_is_that_of_its_store() -> None:
    def body() -> str:
        dist.init_process_group("gloo", timeout=timedelta(seconds=5))
        return told(lambda: dist.distributed_c10d._get_default_store().get("key"))

    assert all("wait timeout after 5000ms" in text for text in ranks(body, clock="real"))


def test_a_store_that_times_out_is_a_key_never_set(tmp_path: pathlib.Path) -> None:
    text = """
        dist.init_process_group("gloo")
        if dist.get_rank() == 1:
            dist.distributed_c10d._get_default_store().get("the key")
    """
    done = run(script(tmp_path, text), 2, tmp_path, "--clock", "virtual")
    assert ids(done) == ["store-key-never-set"] and "the key" in done.findings[0]["headline"]
    assert [place["line"] for place in done.findings[0]["locations"]] == [6]


# Details, in this process


def ranks(fn: Callable[[], Any], world: int = 2, clock: str = "virtual", **options: Any) -> list[Any]:
    return allranks.run(fn, world, clock=clock, **options)


def told(act: Callable[[], object]) -> str:
    with pytest.raises(RuntimeError) as caught:
        act()
    return str(caught.value)


def test_default_time_outs_count_under_a_virtual_clock() -> None:
    def body() -> str:
        dist.init_process_group("gloo")
        return told(dist.barrier) if dist.get_rank() == 0 else ""

    assert f"{HALF_HOUR * 1000}ms" in ranks(body)[0]


def test_without_a_chosen_time_out_a_stall_is_a_stall() -> None:
    def body() -> None:
        dist.init_process_group("gloo")
        if dist.get_rank() == 0:
            try:
                dist.barrier()
            except Exception:
                pass

    with pytest.raises(allranks.RankFailed, match="missing-participant"):
        ranks(body, clock="real")


def test_a_late_rank_comes_in_time_or_not() -> None:
    def body(late: float) -> str:
        dist.init_process_group("gloo", timeout=timedelta(minutes=10))
        if dist.get_rank() == 1:
            time.sleep(late)
        try:
            dist.all_reduce(torch.ones(1))
            return "fine"
        except RuntimeError as error:
            return "timed out" if "Timed out waiting 600000ms" in str(error) else str(error)

    assert ranks(lambda: body(599)) == ["fine", "fine"]
    first, second = ranks(lambda: body(601))
    assert first == "timed out" and "Connection closed by peer" in second


def test_others_in_the_operation_fail_with_it() -> None:
    """Who waits with a longer time-out is closed; who waits with the same times out itself."""

    def body() -> str:
        dist.init_process_group("gloo", timeout=timedelta(minutes=10))
        if dist.get_rank() == 3:
            return ""
        options = dist.BarrierOptions()
        options.timeout = timedelta(minutes=20 if dist.get_rank() == 2 else 5)
        return told(lambda: dist.group.WORLD.barrier(options).wait())

    zero, one, two, _ = ranks(body, 4)
    assert "Timed out waiting 300000ms" in zero and "Timed out waiting 300000ms" in one
    assert "Connection closed by peer" in two


def test_a_group_made_again_is_whole() -> None:
    def body() -> float:
        dist.init_process_group("gloo", timeout=timedelta(minutes=1))
        if dist.get_rank() == 0:
            told(dist.barrier)
        else:
            time.sleep(120)
        dist.destroy_process_group()
        dist.init_process_group("gloo", timeout=timedelta(minutes=1))
        x = torch.ones(1)
        dist.all_reduce(x)
        return x.item()

    assert ranks(body) == [2.0, 2.0]


def test_messages_between_others_go_on() -> None:
    def body() -> str:
        dist.init_process_group("gloo", timeout=timedelta(minutes=1))
        me, x = dist.get_rank(), torch.full((1,), 7.0)
        if me == 0:
            return told(lambda: dist.recv(x, 1))
        if me == 1:
            time.sleep(3600)
            dist.send(x, 2)
            return told(lambda: dist.send(x, 0))
        y = torch.zeros(1)
        dist.irecv(y, 1).wait(timedelta(hours=2))
        return str(y.item())

    zero, one, two = ranks(body, 3)
    assert "Timed out waiting 60000ms for recv" in zero and "Connection closed" in one and two == "7.0"


def test_polling_comes_to_an_end() -> None:
    def body() -> str:
        dist.init_process_group("gloo")
        if dist.get_rank() == 1:
            return ""
        work = dist.all_reduce(torch.ones(1), async_op=True)
        while not work.is_completed():
            pass
        assert not work.is_success() and "Timed out" in str(work.exception())
        return told(work.wait)

    assert f"{HALF_HOUR * 1000}ms" in ranks(body)[0]


def test_nccl_has_no_time_outs_to_catch() -> None:
    def body() -> None:
        dist.init_process_group("nccl", timeout=timedelta(seconds=1))
        if dist.get_rank() == 0:
            dist.barrier()

    with pytest.raises(allranks.RankFailed, match="missing-participant"):
        ranks(body)


def test_the_same_run_again() -> None:
    program = "from test_deadlines import same_run; same_run()"
    path = {"PYTHONPATH": ":".join([str(pathlib.Path(__file__).parent), *sys.path])}
    outs = [
        subprocess.run([sys.executable, "-c", program], env=environment(**path), capture_output=True, check=True).stdout
        for _ in range(2)
    ]
    assert outs[0] == outs[1] and outs[0].count(b"\n") == 40


def same_run() -> None:
    """Sleeps, messages and time-outs in an order that the seed decides."""

    def body() -> None:
        dist.init_process_group("gloo", timeout=timedelta(seconds=50))
        for step in range(10):
            group = dist.new_group(timeout=timedelta(seconds=20))
            time.sleep(random.Random(step * 4 + dist.get_rank()).uniform(0, 30))
            try:
                dist.all_reduce(torch.ones(1), group=group)
                said = "fine"
            except RuntimeError as error:
                said = str(error)
            print(dist.get_rank(), step, said, flush=True)

    ranks(body, 4, schedule="random", seed=5)
