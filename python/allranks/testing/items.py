"""A marked test: set up once for what all ranks share, run on its ranks, and told as one outcome."""

from __future__ import annotations

import shlex
from typing import Any, NoReturn

import pytest

from allranks import _allranks
from allranks.launch import RankFailed
from allranks.testing import hypothesis_tests, marks, prompts, pytest_names, rank_body, verdicts
from allranks.testing.decorator import FindingWarning
from allranks.testing.plugin import WORLD
from allranks.testing.runs import CannotRun, run

KEY = pytest.StashKey["MarkedTest"]()


class RanksFailed(RankFailed, pytest_names.Failed):
    """Ranks disagree, wait for ever, or left: no rank's own error says it. Shown without a traceback: it has none."""

    def __init__(self, message: str, rank: int) -> None:
        pytest_names.Failed.__init__(self, message, pytrace=False)
        self.rank = rank

    __module__ = "builtins"  # As pytest's own: the summary shows no path.


class MarkedTest:
    """Stands in for an item's own `setup`, `runtest` and `teardown` while pytest runs it."""

    def __init__(self, item: pytest.Function, asked: marks.Asked) -> None:
        self.item, self.asked = item, asked
        #: The run that is going on or was the last.
        self.case: marks.Case | None = None
        self.verdict = verdicts.Verdict()
        callspec = getattr(item, "callspec", None)
        several = callspec.params.get(WORLD) if callspec is not None else None
        self._sizes = asked.world_sizes if several is None else (several,)

    def setup(self) -> None:
        """What is one for all ranks: fixtures wider than a test, and `tmp_path`."""
        __tracebackhide__ = True
        if refusal := _allranks.launch_refusal():
            _raise(pytest_names.Failed(f"{refusal}; start pytest by itself, not under a launcher", pytrace=False))
        item: Any = self.item
        for name in item.fixturenames:
            found = pytest_names.definitions(item, name)
            # One that does not exist is asked for here too: pytest says so best.
            if name != "request" and (not found or pytest_names.is_shared(item, found[-1])):
                item.funcargs[name] = item._request.getfixturevalue(name)

    def runtest(self) -> None:
        """The test, on its ranks, in each of the cases that the mark asks for; the first failure ends it."""
        __tracebackhide__ = True
        if hypothesis_tests.is_one(self.item):
            hypothesis_tests.run(self.item, self._run_cases)
        else:
            self._run_cases(None, {})

    def _run_cases(self, function: Any, values: dict[str, Any]) -> None:
        __tracebackhide__ = True
        for world_size in self._sizes:
            for case in self.asked.cases(world_size):
                self._run(case, function, values)

    def _run(self, case: marks.Case, function: Any, values: dict[str, Any]) -> None:
        __tracebackhide__ = True
        self.case = case
        stops = self.item.config.getoption("usepdb", False) and function is None  # Examples fail to be shrunk.
        on_failure = prompts.stop_in_rank if stops else None
        body = rank_body.ItemBody(self.item, on_failure, function, values)
        try:
            result = run(case, body)
        except CannotRun as error:
            _raise(pytest_names.Failed(str(error), pytrace=False))
        finally:
            body.end()
        verdict = self.verdict = verdicts.judge(result, RanksFailed, self._repeat(case))
        if isinstance(verdict.error, KeyboardInterrupt):
            self._say_where_ranks_stood(verdict.text)
        for text in verdict.warnings:
            self.item.warn(FindingWarning(text))
        control = [record.error for record in result.failed if isinstance(record.error, _CONTROL)]
        if control and control[0] is not None:
            raise control[0]  # Not this test's: the whole session is to end.
        if isinstance(verdict.error, RanksFailed):
            _raise(verdict.error)
        if verdict.error is not None:
            raise verdict.error

    def teardown(self) -> None:
        """What cleaning up raised on a rank."""
        __tracebackhide__ = True
        if self.verdict.teardown_error is not None:
            raise self.verdict.teardown_error

    def _say_where_ranks_stood(self, text: str) -> None:
        """After Ctrl-C: nothing else of this test is ever shown."""
        manager = self.item.config.pluginmanager
        reporter, capture = manager.getplugin("terminalreporter"), manager.getplugin("capturemanager")
        if reporter is not None and capture is not None:
            with capture.global_and_fixture_disabled():
                reporter.ensure_newline()
                reporter.write_line(f"{self.item.nodeid}, interrupted:\n{text}")

    def _repeat(self, case: marks.Case) -> str:
        command = f"pytest {shlex.quote(self.item.nodeid)}"
        if case.rank is not None:
            return f"repeat: {command}"
        if case.schedule == "round-robin" and case.seed == 0:
            return f"repeat: {command}  (round-robin, seed 0)"
        return f"repeat: {command} --allranks-schedule={case.schedule} --allranks-seed={case.seed}"

    def explain(self, report: Any, when: str) -> None:
        """Adds to a failed report what the ranks did."""
        text = self.verdict.teardown_text if when == "teardown" else self.verdict.text
        if not text or self.case is None:
            return
        title = f"allranks: world size {self.case.world_size}"
        if hasattr(report.longrepr, "addsection"):
            report.longrepr.addsection(title, text)
        elif isinstance(report.longrepr, str):
            report.longrepr = f"{report.longrepr}\n{text}"
        else:
            report.sections.append((title, text))


def _raise(error: BaseException) -> NoReturn:
    """Here rather than in a hidden frame: where every frame is hidden, pytest says so below the text."""
    raise error from None


_CONTROL = (KeyboardInterrupt, pytest.exit.Exception)


def asked_by(item: Any, config: pytest.Config) -> marks.Asked | None:
    """What the item's marks ask for, the nearest first; None if it has none. Raises `marks.BadOptions`."""
    found = list(item.iter_markers("allranks"))
    if not found:
        return None
    options: dict[str, Any] = {}
    args: tuple[Any, ...] = ()
    for mark in reversed(found):
        if mark.args:
            args = mark.args
            options.pop("world_size", None)
        elif "world_size" in mark.kwargs:
            args = ()
        options.update(mark.kwargs)
    return marks.parse(args, options, _settings(config, "ini"), _settings(config, "command line"))


def _settings(config: pytest.Config, where: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("seed", "schedule"):
        value = config.getini(f"allranks_{name}") if where == "ini" else config.getoption(f"allranks_{name}")
        if value in (None, ""):
            continue
        if name == "seed" and isinstance(value, str):
            if not value.isdigit():
                raise marks.BadOptions(f"allranks_seed = {value}: it is {marks.KNOWN['seed']}")
            value = int(value)
        found[name] = value
    return found
