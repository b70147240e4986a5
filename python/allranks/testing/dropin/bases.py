"""What is replaced on torch's test bases in the pytest process."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from allranks.testing.dropin import names, process
from allranks.testing.dropin.ledger import Ledger, NeedsProcesses
from allranks.testing.dropin.zygote import Zygote, ZygoteDied


class State:
    """What the replacements need."""

    def __init__(self, ledger: Ledger, zygote: Zygote | None, options: dict[str, Any], refusal: str | None) -> None:
        self.ledger, self.zygote, self.options = ledger, zygote, options
        #: Why no test can run in one process here, if none can.
        self.refusal = refusal
        #: Why the test that runs now has to run as processes, once that is known.
        self.forced: str | None = None

    def refuses(self, test: Any, world_size: int) -> str | None:
        """Why this test has to run as processes, or None."""
        reason = self.forced or self.refusal or needs_processes(test)
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


def install(state: State) -> None:
    """Replaces what starts ranks; torch's bases are imported."""
    module = sys.modules[names.MODULE]
    module.time = _Clock()  # type: ignore[attr-defined]
    _processes(state, getattr(module, names.PROCESSES))


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
        assert state.zygote is not None
        try:
            batch.go(state.zygote.fork, state.options)
        except ZygoteDied as error:
            raise NeedsProcesses(str(error)) from None
        state.ledger.ran_together()

    base._spawn_processes = spawn_processes
    base.run = _running_again(state, base)


def _running_again(state: State, base: Any) -> Any:
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
        try:
            return inherited(self, result)
        finally:
            state.forced = None

    return run
