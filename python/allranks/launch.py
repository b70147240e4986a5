"""Starts the ranks, waits for them, and says how each ended."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allranks import _allranks, failures, isolation, runtime, watchdog
from allranks.environment import variables_of
from allranks.isolation import clock, environment, exits, placement, signals
from allranks.isolation.registry import Registry
from allranks.isolation.threads import RankThread, raise_in_thread
from allranks.tagged import TaggedStream

#: How long ranks may take to end once the run was aborted, in seconds.
GRACE = 0.5
#: How often the main thread looks, in seconds.
STEP = 0.05


@dataclass
class RankResult:
    """How a rank ended."""

    rank: int
    #: As a process would give it; None if the rank was stopped because the run could not go on.
    status: int | None = None
    #: What it raised, `SystemExit` and the abort of the run apart.
    error: BaseException | None = None
    #: What the function returned.
    value: Any = None
    #: The signal that ended it, if one did; `status` is then 128 and its number.
    signal: int | None = None

    @property
    def ok(self) -> bool:
        """Whether it ended well."""
        return self.status == 0


@dataclass
class Outcome:
    """How a run ended."""

    ranks: list[RankResult]
    #: Ctrl-C.
    interrupted: bool = False
    #: Ranks whose threads did not end: they stand in code that never looks back.
    stuck: tuple[int, ...] = ()
    #: The engine, for findings and the summary.
    world: Any = None

    @property
    def ok(self) -> bool:
        """Whether every rank ended well."""
        return all(result.ok for result in self.ranks) and not self.interrupted


@dataclass(frozen=True)
class Options:
    """What of a plan matters here; a `RunPlan` has the same names."""

    world_size: int
    seed: int = 0
    schedule: str = "round-robin"
    clock: str = "real"
    profile: str | None = None
    watchdog: float | None = 10.0
    tag_output: bool = False
    pdb: bool = False
    quiet: bool = False
    #: Whether ranks find the variables that torchrun sets (RANK, MASTER_ADDR, ...) in their environment.
    launcher: bool = True
    #: Names of backends that are ours too, beside gloo, nccl and fake.
    backends: tuple[str, ...] = ()


class TooManyRanks(RuntimeError):
    """The system has no thread for every rank."""


class RankFailed(RuntimeError):
    """A rank of `run` raised; `rank` says which, `__cause__` what."""

    def __init__(self, message: str, rank: int) -> None:
        super().__init__(message)
        self.rank = rank


def run_all_ranks(
    plan: Any,
    target: Callable[[int], Any],
    *,
    show_errors: bool = True,
    on_end: Callable[[RankResult], None] | None = None,
) -> Outcome:
    """Runs `target(rank)` as every rank of `plan.world_size`; `plan` is a `RunPlan` or `Options`.

    `on_end` is called on the thread of each rank that ended by itself, as soon as it has. What the run changes in the
    process is undone when it returns.
    """
    if runtime.current() is not None:
        raise RuntimeError("a run of allranks is going on in this process; runs cannot be nested")
    with _prepared(plan) as run:
        outcome = _Launch(run, plan, target, show_errors, on_end).go()
        run.session.evidence.explain()
        return outcome


@contextlib.contextmanager
def _prepared(plan: Any) -> Iterator[runtime.Runtime]:
    registry = Registry(plan.world_size, plan.seed)
    backend: Any = None
    try:
        isolation.install(registry)
        baton = _allranks.Baton(
            schedule=plan.schedule,
            seed=plan.seed,
            swapper=registry.swapper,
            on_stall=lambda: _on_stall(run),
            clock=plan.clock,
            on_expiry=lambda rank, text: _on_expiry(run, rank, text),
        )
        if baton.is_virtual:
            clock.install(registry)
        run = runtime.Runtime(plan.world_size, baton, registry.swapper, registry, _allranks.World(baton), plan)
        if getattr(plan, "launcher", True):
            _set_environments(run)
        runtime.set_current(run)
        from allranks import backend

        run.session = backend.install(run)
        yield run
    finally:
        if backend is not None:
            backend.uninstall()
        runtime.set_current(None)
        registry.close()


def _set_environments(run: runtime.Runtime) -> None:
    port = _free_looking_port()
    for rank in range(run.world_size):
        mapping = environment.environment_of(run.registry, rank)
        for name, value in variables_of(rank, run.world_size, port, os.environ).items():
            mapping[os.environ.encodekey(name)] = os.environ.encodevalue(value)  # type: ignore[attr-defined]


def _free_looking_port() -> int:
    """Nobody listens there; programs put it into file names, so two runs should differ."""
    return 20000 + os.getpid() % 10000


def _on_stall(run: runtime.Runtime) -> None:
    """Nobody can go on: the engine says why and ends the run."""
    waits = _store_waits()
    run.stalled = True
    run.stood = watchdog.where_ranks_stand(run, waits, stalled=True)
    try:
        run.world.stall(waits)
    finally:
        if not run.baton.is_aborted:
            run.baton.abort()


def _on_expiry(run: runtime.Runtime, rank: int, text: str | None) -> None:
    """A wait of a rank times out, first without `text`: what a stall would be told is kept, in case it dies of that."""
    if text is None:
        run.world.expiring(rank, _store_waits())
    else:
        run.world.suspect_stall(rank, text)


def _store_waits() -> list[tuple[int, list[str]]]:
    from allranks.backend import store

    hub = store.hub()
    return [(task, [_as_written(key) for key in keys]) for task, keys in hub.waits()] if hub is not None else []


def _as_written(key: str) -> str:
    """A store key as the program wrote it: torch puts a prefix of its own before those of the default store."""
    return re.sub(r"^default_pg/\d+//", "", key)


class _Launch:
    def __init__(
        self,
        run: runtime.Runtime,
        plan: Any,
        target: Callable[[int], Any],
        show_errors: bool,
        on_end: Callable[[RankResult], None] | None,
    ) -> None:
        self._run, self._plan, self._target = run, plan, target
        self._show_errors, self._on_end = show_errors, on_end
        self._reporter = failures.Reporter()
        self._results = [RankResult(rank) for rank in range(run.world_size)]
        self._placement = placement.Placement(run)

    def go(self) -> Outcome:
        run = self._run
        exits.on_hard_exit(run, self._hard_exit)
        threads = []
        for rank in range(run.world_size):
            task = run.baton.spawn(rank)
            thread = RankThread(target=self._rank_main, args=(rank, task), rank=rank)
            run.main_threads[rank] = run.task_threads[task] = thread
            try:
                thread.start_outside()
            except RuntimeError as error:
                run.baton.abort()  # Those that are there end.
                raise TooManyRanks(f"the system gives no thread to rank {rank} of {run.world_size}: {error}") from None
            threads.append(thread)
        run.baton.start()
        try:
            interrupted = self._wait()
        except BaseException:  # A signal handler of somebody else raised: what is replaced must outlive the ranks.
            run.baton.abort()
            self._end()
            raise
        stuck = self._end() if run.baton.is_aborted else ()
        if not stuck:
            for thread in threads:
                thread.join_outside(GRACE)
        return Outcome(self._results, interrupted, stuck, run.world)

    def _end(self) -> tuple[int, ...]:
        """After an abort: ranks whose threads do not end, whatever is tried."""
        if self._over_soon(GRACE):
            return ()
        told: set[int] = set()
        for _ in range(int(GRACE / STEP)):
            for task, _, _, state in self._run.baton.tasks():
                thread = self._run.task_threads.get(task)
                # The others wait for the baton, and are told with it.
                if state in ("running", "outside") and thread is not None and thread.ident and task not in told:
                    told.add(task)
                    raise_in_thread(thread, _allranks.RankAborted)  # It ends a loop of Python, not a call into C.
            if self._over_soon(STEP):
                return ()
        alive = {rank for _, rank, daemon, state in self._run.baton.tasks() if state != "done" and not daemon}
        return tuple(sorted(alive))

    def _over_soon(self, seconds: float) -> bool:
        with contextlib.suppress(KeyboardInterrupt):
            return bool(self._run.baton.wait_over(seconds))
        return False

    def _wait(self) -> bool:
        caught: dict[int, Any] = {}
        watch = watchdog.Watchdog(self._run, getattr(self._plan, "watchdog", None))
        try:
            while not self._run.baton.wait_over(STEP):
                if self._run.baton.is_aborted and watch.aborted_for() > GRACE:
                    return False
                signals.catch_wanted(caught)
                watch.look()
        except KeyboardInterrupt:
            with watchdog.second_interrupt_exits():
                watchdog.say_where_ranks_stand(self._run)
                self._run.baton.abort()
            return True
        finally:
            signals.release(caught)
        return False

    def _rank_main(self, rank: int, task: int) -> None:
        """The whole life of a rank, on its thread."""
        run, result = self._run, self._results[rank]
        try:
            self._placement.place_this_thread()
            run.baton.attach(task, rank)
            exits.begin_rank(rank)
            if run.baton.is_aborted:
                raise _allranks.RankAborted("the run was aborted")  # Before its first turn.
            if getattr(self._plan, "tag_output", False):
                sys.stdout, sys.stderr = (TaggedStream(stream, rank) for stream in (sys.stdout, sys.stderr))
            for act in run.registry.at_rank_start:
                act(rank)
            self._program(rank, result)
            exits.end_rank(run, rank)
        except _allranks.RankAborted:
            pass
        except BaseException as error:  # Raised at the end of the rank: by a thread that it joined, or by us.
            self._failed(rank, result, error)
        if run.stalled and result.status == 0:
            result.status = None  # It waited when nobody could go on, whatever it made of that.
        with contextlib.suppress(_allranks.RankAborted):
            for act in reversed(run.registry.at_rank_end):
                act(rank)
            _flush()
            run.world.rank_ended(rank, result.ok)
            self._tell_end(result)
        if _allranks.current_task() is not None:
            exits.end_threads(run, rank)
            run.baton.finish()

    def _program(self, rank: int, result: RankResult) -> None:
        try:
            result.value = self._target(rank)
            result.status = 0
        except SystemExit as stop:
            result.status = exits.status_of(stop)
            if result.status:
                self._run.session.diagnose(rank, stop)  # It may leave because of an exception that it handles.
                self._run.world.rank_failed(rank, *failures.place_of(stop), f"exited with status {result.status}")
        except _allranks.RankAborted:
            raise
        except BaseException as error:
            self._failed(rank, result, error)

    def _failed(self, rank: int, result: RankResult, error: BaseException) -> None:
        result.status, result.error = 1, error
        place = failures.place_of(error)
        try:
            if self._show_errors:
                self._reporter.show(rank, error)
            if getattr(self._plan, "pdb", False) and error.__traceback__ is not None:
                from allranks import debugger

                debugger.post_mortem(rank, error)
        finally:
            tell_failed(self._run, rank, error, place)

    def _tell_end(self, result: RankResult) -> None:
        if self._on_end is not None and result.status is not None:
            self._on_end(result)

    def _hard_exit(self, rank: int, status: int, by: int | None) -> None:
        """`os._exit` or a signal in a rank: it is gone, without any of what `_rank_main` does at the end."""
        result = self._results[rank]
        result.status, result.signal = status, by
        if status:
            what = f"os._exit({status})" if by is None else f"ended by {signal.Signals(by).name}"
            site = _allranks.user_site(sys._getframe(1)) or (None, 0, "")
            self._run.world.rank_failed(rank, *site, what)
        self._run.world.rank_ended(rank, status == 0)
        self._tell_end(result)


def tell_failed(run: runtime.Runtime, rank: int, error: BaseException, place: tuple[str | None, int, str]) -> None:
    """Says to the engine that `rank` failed by `error`, which was raised at `place`."""
    run.session.diagnose(rank, error)
    run.world.rank_failed(rank, *place, one_line(error))


def one_line(error: BaseException) -> str:
    text = str(error).strip().split("\n", 1)[0]
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def run_fn(
    fn: Callable[..., Any],
    world_size: int,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    allow_launcher: bool = False,
    **options: Any,
) -> list[Any]:
    """Calls `fn(*args, **kwargs)` as every rank and returns what the ranks returned, in order.

    `fn`'s own module, and whatever else is imported already, is shared by all ranks: its globals are one for all.
    Modules that ranks import for the first time are private as in `allranks run`. Raises `RankFailed`, which names the
    rank that failed first, if one did.
    """
    if world_size < 1:
        raise ValueError(f"a world has at least one rank, not {world_size}")
    if not allow_launcher and (refusal := _allranks.launch_refusal()):
        raise RuntimeError(f"{refusal}; pass allow_launcher=True if this is what you mean")
    outcome = run_all_ranks(
        Options(world_size=world_size, **options), lambda _rank: fn(*args, **(kwargs or {})), show_errors=False
    )
    if outcome.interrupted:
        raise KeyboardInterrupt
    findings = outcome.world.has_error
    failed = [result for result in outcome.ranks if not result.ok]
    if failed or findings:
        raise _failure(outcome, failed)
    return [result.value for result in outcome.ranks]


def _failure(outcome: Outcome, failed: list[RankResult]) -> RankFailed:
    found = _allranks.findings_text(outcome.world).strip()
    text = f"\n{found}" if found else ""
    raised = [result for result in failed if result.error is not None]
    exited = [result for result in failed if result.status]
    others = "" if len(raised or exited) < 2 else f" (and {len(raised or exited) - 1} more)"
    if raised:
        first, error = raised[0], raised[0].error
        assert error is not None
        failure = RankFailed(f"rank {first.rank} raised {one_line(error)}{others}{text}", first.rank)
        failure.__cause__ = error
        return failure
    if exited:
        return RankFailed(f"rank {exited[0].rank} exited with status {exited[0].status}{others}{text}", exited[0].rank)
    rank = failed[0].rank if failed else -1
    return RankFailed(f"{'the run could not go on' if failed else 'allranks found an error'}{text}", rank)


def run_one_rank(plan: Any, target: Callable[[int], Any], *, show_errors: bool = True) -> RankResult:
    """Runs `target` as one rank of a big world, on the main thread, without isolation: nobody else is there.

    What it changes stays: the variables of a launcher, and torch's backends until `one_rank.uninstall`.
    """
    from allranks import one_rank

    os.environ.update(variables_of(plan.rank, plan.world_size, _free_looking_port(), os.environ))
    one_rank.install(world_size=plan.world_size, rank=plan.rank, fill=plan.fill, profile=plan.profile)
    result = RankResult(plan.rank)
    try:
        result.value = target(plan.rank)
        result.status = 0
    except SystemExit as stop:
        result.status = exits.status_of(stop)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        result.status, result.error = 1, error
        if show_errors:
            failures.Reporter().show(plan.rank, error)
        if plan.pdb and error.__traceback__ is not None:
            from allranks import debugger

            debugger.post_mortem(plan.rank, error)
    _flush()
    return result
