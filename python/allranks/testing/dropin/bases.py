"""What is replaced on torch's test bases in the pytest process."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from allranks.testing.dropin import names, process
from allranks.testing.dropin.ledger import Ledger, NeedsProcesses
from allranks.testing.dropin.pipes import PipeQueue
from allranks.testing.dropin.zygote import Zygote, ZygoteDied


class State:
    """What the replacements need."""

    def __init__(self, ledger: Ledger, options: dict[str, Any]) -> None:
        self.ledger, self.options = ledger, options
        #: There once tests are collected.
        self.zygote: Zygote | None = None
        #: Why no test can run in one process here, if none can.
        self.refusal = None if hasattr(os, "fork") else "this platform has no fork"
        #: Why the test that runs now has to run as processes, once that is known.
        self.forced: str | None = None

    def go(self, batch: process.Batch) -> None:
        """Starts the ranks. Raises `NeedsProcesses` if nobody is there to fork their child."""
        try:
            if self.zygote is None:
                raise ZygoteDied("ranks were started before all tests were collected")
            batch.go(self.zygote.fork, self.options)
        except ZygoteDied as error:
            raise NeedsProcesses(str(error)) from None

    def refuses(self, test: Any, world_size: int) -> str | None:
        """Why this test has to run as processes, or None."""
        reason = self.forced or self.refusal or needs_processes(test)
        if reason is None and sys.modules["torch"].accelerator.is_available():
            reason = "torch's bases use the accelerator of this machine, each rank in a process of its own"
        # Descriptors that one message carries: standard streams, and up to four for each rank.
        if reason is None and 4 * world_size + 2 > 250:
            reason = f"{world_size} ranks are more than one child is given"
        return reason


def needs_processes(test: Any) -> str | None:
    """What of a test says beforehand that it is about processes: an instance, or the class."""
    cls = test if isinstance(test, type) else type(test)
    for base in cls.__mro__:
        if base.__module__.startswith(names.FOREIGN):
            return "its ranks talk by RPC"
    checks = getattr(test, "special_return_code_checks", None)
    if checks and not isinstance(test, type):
        method = getattr(test, test._testMethodName, None)
        for candidate in (method, getattr(method, "__wrapped__", None)):
            wanted = next((code for fn, code in checks.items() if fn == candidate), 0)
            if wanted < 0:
                return f"it expects a rank to end by signal {-wanted}"
    return None


class _Clock:
    """The module `time` for torch's bases: to sleep while ranks run is to wait for news of them."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        """Upstream asks every 0.1 s; here whatever comes ends the wait."""
        if process.any_live():
            process.wait_for_news(1.0)
        else:
            time.sleep(seconds)


class _Recording:
    """A result that keeps outcomes until it is known whether they count."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self._kept: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._real, name)
        if not name.startswith("add") or name == "addCleanup":
            return value

        def keep(*args: Any, **kwargs: Any) -> None:
            self._kept.append((value, args, kwargs))

        return keep

    def tell(self) -> None:
        """They count."""
        for method, args, kwargs in self._kept:
            method(*args, **kwargs)


def install(state: State, module: Any) -> None:
    """Replaces what starts ranks in the module of torch's bases."""
    module.time = _Clock()
    _processes(state, getattr(module, names.PROCESSES))
    _continuous(state, getattr(module, names.CONTINUOUS))
    _threads(state, getattr(module, names.THREADS), module)


def _processes(state: State, base: Any) -> None:
    original = base._spawn_processes

    def spawn_processes(self: Any) -> None:
        reason = state.refuses(self, int(self.world_size))
        if reason is not None:
            state.ledger.ran_as_processes(reason)
            original(self)
            return
        batch = process.Batch()
        self._start_processes(batch.process)
        state.go(batch)
        state.ledger.ran_together()

    base._spawn_processes = spawn_processes
    base.run = _running_again(state, base)


def _running_again(state: State, base: Any, before: Callable[[Any], None] = lambda test: None) -> Any:
    """A test that turns out to need processes runs again, from its beginning."""
    inherited = base.run

    def run(self: Any, result: Any = None) -> Any:
        if result is None or state.refusal is not None:
            return inherited(self, result)
        recording = _Recording(result)
        reasons: list[str] = []
        state.forced = None
        NeedsProcesses.noted = reasons
        try:
            value = inherited(self, recording)
        finally:
            NeedsProcesses.noted = None
        if not reasons:
            recording.tell()
            return value
        state.forced = reasons[0]
        before(self)
        try:
            return inherited(self, result)
        finally:
            state.forced = None

    return run


def _continuous(state: State, base: Any) -> None:
    """One child a class: it waits for the next test as upstream's workers do."""
    original = base._spawn_processes.__func__
    #: By class whose workers are there: why they are processes, or None.
    reasons: dict[type, str | None] = {}

    def spawn_processes(cls: Any, world_size: Any) -> None:
        reasons[cls] = reason = state.refuses(cls, int(world_size))
        if reason is not None:
            original(cls, world_size)
            return
        import torch.multiprocessing

        batch = process.Batch()
        real = torch.multiprocessing.Process, torch.multiprocessing.Queue
        torch.multiprocessing.Process, torch.multiprocessing.Queue = batch.process, PipeQueue  # type: ignore
        try:
            original(cls, world_size)
        finally:
            torch.multiprocessing.Process, torch.multiprocessing.Queue = real  # type: ignore
        state.go(batch)

    base._spawn_processes = classmethod(spawn_processes)
    running = _running_again(state, base, _without_workers)

    def run(self: Any, result: Any = None) -> Any:
        try:
            return running(self, result)
        finally:
            if type(self) in reasons:
                reason = reasons[type(self)]
                if reason is None:
                    state.ledger.ran_together()
                else:
                    state.ledger.ran_as_processes(reason)

    base.run = run


def _without_workers(test: Any) -> None:
    """The class has to start its workers again."""
    cls = type(test)
    for one in cls.processes:
        one.kill()
    cls._processes_spawned = False
    cls.poison_pill = False


def _threads(state: State, base: Any, module: Any) -> None:
    original = base._spawn_threads

    def spawn_threads(self: Any) -> None:
        if state.refusal is not None:
            state.ledger.ran_as_processes(state.refusal)
            original(self)
            return
        cls, name, world_size = type(self), self._current_test_name, int(self.world_size)

        def call(rank: int, store: Any) -> None:
            cls.global_store = store
            cls._run(name, rank, world_size)

        self.threads = _started(state, base, module, world_size, call)

    base._spawn_threads = spawn_threads
    module.spawn_threads_and_init_comms = _decorating(state, base, module, module.spawn_threads_and_init_comms)


def _decorating(state: State, base: Any, module: Any, original: Any) -> Any:
    """The same for one function."""

    @functools.wraps(original)
    def spawn_threads_and_init_comms(func: Any = None, timeout: Any = None, world_size: Any = None) -> Any:
        size = module.DEFAULT_WORLD_SIZE if world_size is None else world_size
        if func is None:
            return lambda function: spawn_threads_and_init_comms(function, timeout, size)
        if state.refusal is not None:
            return original(func, world_size=size)

        @functools.wraps(func)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
            c10d = sys.modules["torch.distributed"]

            def call(rank: int, store: Any) -> None:
                c10d.init_process_group("threaded", rank=rank, world_size=size, store=store)
                try:
                    func(self, *args, **kwargs)
                except BaseException:
                    base.exception_queue.put((rank, sys.exc_info()))
                finally:
                    c10d.destroy_process_group()

            base._join_threads(_started(state, base, module, size, call), func)

        return wrapper

    return spawn_threads_and_init_comms


def _started(
    state: State, base: Any, module: Any, world_size: int, call: Callable[[int, Any], None]
) -> list[process.RankProcess]:
    from allranks.testing.dropin.threaded import Threads

    stores: list[Any] = []

    def call_with_store(rank: int) -> None:
        if not stores:
            stores.append(sys.modules["torch.distributed"].HashStore())  # One for all, as threads have it.
        call(rank, stores[0])

    batch = Threads(world_size, base.exception_queue)
    batch.start(state.options, call_with_store)
    # What upstream undoes when it has joined the threads.
    sys.modules["torch"]._C._distributed_c10d._set_thread_isolation_mode(True)
    module._install_threaded_pg()
    state.ledger.ran_together()
    return batch.ranks
