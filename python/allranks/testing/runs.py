"""Runs one test on its ranks and notes what became of each. Knows nothing of pytest or unittest."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from allranks import _allranks, failures, launch, runtime
from allranks.testing.marks import Case


class CannotRun(RuntimeError):
    """The process is in no state to run a test on ranks; the text says why."""


@dataclass
class Record:
    """What one rank did."""

    rank: int
    #: Where it is or ended: "start", "setup", "call" or "teardown".
    stage: str = "start"
    #: It came to its end, well or not. False: it was stopped, or left without a word.
    finished: bool = False
    #: What ended the test on this rank, skipping included, and in which stage.
    error: BaseException | None = None
    error_stage: str = "call"
    #: "passed", "failed", "skipped" or "xfailed", so far.
    outcome: str = "passed"
    #: File, line and function of the program where `error` was raised.
    place: tuple[str | None, int, str] = (None, 0, "")
    #: What cleaning up raised, if the test itself had not failed.
    teardown_error: BaseException | None = None
    value: Any = None


@dataclass
class Result:
    """What a run came to."""

    case: Case
    records: list[Record]
    #: Failed ranks, in the order of time.
    failed: list[Record] = field(default_factory=list)
    #: `launch.RankResult` of each rank.
    ranks: list[Any] = field(default_factory=list)
    interrupted: bool = False
    stuck: tuple[int, ...] = ()
    #: `watchdog.Stand`: where ranks stood when the run could not go on.
    stood: list[Any] = field(default_factory=list)
    #: The findings: as text for people, and as JSON, one each.
    text: str = ""
    findings: list[str] = field(default_factory=list)
    has_error: bool = False


class Body:
    """A test, as its ranks run it. Every method is called on the rank's own thread, with its state in place."""

    def begin(self, rank: int) -> None:
        """Before the process group is made."""

    def setup(self, rank: int) -> None:
        """Once there is a process group."""

    def call(self, rank: int) -> Any:
        """The test itself."""
        raise NotImplementedError

    def teardown(self, rank: int) -> None:
        """After the test, failed or not; not on a rank that was stopped. The process group is still there."""

    def outcome_of(self, error: BaseException) -> str:
        """What `error` means: "failed", "skipped" or "xfailed"."""
        return "failed"

    def failed(self, rank: int, record: Record) -> None:
        """The rank has just failed; the others stand still as long as this takes."""


def run(case: Case, body: Body) -> Result:
    """Runs `body` as the ranks of `case` and undoes everything that this changed in the process.

    Raises `CannotRun` within another run, where the system gives no threads, and for one rank if this thread has a
    process group.
    """
    if runtime.current() is not None:
        raise CannotRun("a run of allranks is going on in this process; runs cannot be nested")
    if case.rank is not None:
        return _one_rank(case, body)
    result = Result(case, [Record(rank) for rank in range(case.world_size)])
    found: list[Any] = []

    def target(rank: int) -> None:
        if not found:
            found.append(runtime.current())
        _rank(result, result.records[rank], body)

    try:
        outcome = launch.run_all_ranks(_options(case), target, show_errors=False)
    except launch.TooManyRanks as error:
        raise CannotRun(str(error)) from None
    result.ranks, result.interrupted, result.stuck = outcome.ranks, outcome.interrupted, outcome.stuck
    result.stood = found[0].stood if found else []
    result.findings = _allranks.findings_json(outcome.world)
    if result.findings:
        result.text = _allranks.findings_text(outcome.world).strip()
    result.has_error = outcome.world.has_error
    for ended in outcome.ranks:  # Raised outside of `_rank`: by a thread that the rank joined, by `atexit`, or by us.
        record = result.records[ended.rank]
        if ended.error is not None and record.error is None:
            _note(result, record, body, ended.error)
    return result


def _options(case: Case) -> launch.Options:
    return launch.Options(
        world_size=case.world_size,
        seed=case.seed,
        schedule=case.schedule,
        profile=case.profile,
        watchdog=case.watchdog,
        clock=case.clock,
        tag_output=True,
    )


def _rank(result: Result, record: Record, body: Body) -> None:
    """The whole life of a rank. What ends the run, and only that, comes out."""
    import torch.distributed as dist

    case, rank = result.case, record.rank
    try:
        body.begin(rank)
        record.stage = "setup"
        if case.init:
            dist.init_process_group(case.backend)
        body.setup(rank)
        record.stage = "call"
        record.value = body.call(rank)
    except _allranks.RankAborted:
        raise
    except BaseException as error:
        _note(result, record, body, error)
    stage, record.stage = record.stage, "teardown"
    try:
        if stage != "start":
            body.teardown(rank)
        if record.outcome != "failed" and case.init and dist.is_initialized():
            dist.destroy_process_group()
    except _allranks.RankAborted:
        raise
    except BaseException as error:
        if record.error is None:
            failures.clean(error)
            record.teardown_error = error
    record.finished = True


def _note(result: Result, record: Record, body: Body, error: BaseException) -> None:
    record.error, record.error_stage = error, "setup" if record.stage == "start" else record.stage
    record.place = failures.place_of(error)
    record.outcome = body.outcome_of(error)
    failures.clean(error)
    if record.outcome != "failed":
        return
    result.failed.append(record)
    run = runtime.current()
    try:
        body.failed(record.rank, record)
    except _allranks.RankAborted:
        raise
    except BaseException as stop:  # Somebody leaves the debugger.
        record.error = stop
    finally:
        if run is not None:
            launch.tell_failed(run, record.rank, error, record.place)


@dataclass(frozen=True)
class _OneRankPlan:
    rank: int
    world_size: int
    profile: str | None
    fill: str = "uniform"
    pdb: bool = False


def _one_rank(case: Case, body: Body) -> Result:
    """One rank of a world without peers, on this thread."""
    import torch.distributed as dist

    assert case.rank is not None
    if dist.is_initialized():
        raise CannotRun("rank= runs one rank on this thread, which has a process group already: destroy it before")
    record = Record(case.rank)
    result = Result(case, [record])
    plan = _OneRankPlan(case.rank, case.world_size, case.profile)
    target: Callable[[int], None] = lambda _rank: _rank_of_none(result, record, body)  # noqa: E731
    with _nothing_left():
        result.ranks = [launch.run_one_rank(plan, target, show_errors=False)]
    return result


def _rank_of_none(result: Result, record: Record, body: Body) -> None:
    _rank(result, record, body)
    if isinstance(record.error, KeyboardInterrupt):
        raise record.error


@contextmanager
def _nothing_left() -> Iterator[None]:
    """Puts back what one-rank mode leaves: variables, torch's backends, the process group of a failed test."""
    import torch.distributed as dist

    from allranks import one_rank

    environment = dict(os.environ)
    try:
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        one_rank.uninstall()
        for name in set(os.environ) - set(environment):
            del os.environ[name]
        os.environ.update(environment)
