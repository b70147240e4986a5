"""Between pytest's hooks and a marked test; imported with the first of them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from allranks._allranks import current_rank
from allranks.testing import hypothesis_tests, items, marks, prompts, pytest_names
from allranks.testing.rank_body import OVERRIDES

if pytest.version_tuple < (8, 2):
    raise pytest.UsageError(f"tests marked allranks need pytest 8.2 or newer; this is {pytest.__version__}")


def world_sizes(metafunc: pytest.Metafunc) -> tuple[int, ...]:
    """What the mark of a function asks for; `pytest.fail` if that makes no sense."""
    return _asked(metafunc.definition, metafunc.config).world_sizes


def _asked(item: Any, config: pytest.Config) -> marks.Asked:
    problem = _problem(item, config)
    if isinstance(problem, str):
        pytest.fail(problem, pytrace=False)
    return problem


def _problem(item: Any, config: pytest.Config) -> marks.Asked | str:
    try:
        asked = items.asked_by(item, config)
    except marks.BadOptions as error:
        return f"{item.name}: @pytest.mark.allranks: {error}"
    if inspect.iscoroutinefunction(item.obj):
        return f"{item.name}: a test marked allranks cannot be async; let it call asyncio.run itself"
    if isinstance(item, pytest_names.TestCaseFunction) and hypothesis_tests.is_one(item):
        return f"{item.name}: @given on a unittest method cannot be marked allranks: make it one of a plain class"
    assert asked is not None, "asked for marked tests only"
    return asked


def check_methods(report: Any, config: pytest.Config) -> None:
    """Makes the report of a unittest class one of an error if a mark in it is wrong."""
    for item in report.result:
        if getattr(item, "nofuncargs", False) and item.get_closest_marker("allranks"):
            problem = _problem(item, config)
            if isinstance(problem, str):
                report.outcome, report.longrepr, report.result = "failed", problem, []
                return


@contextmanager
def taken_over(item: pytest.Function) -> Iterator[None]:
    """Meanwhile the item is run on ranks."""
    test = items.MarkedTest(item, _asked(item, item.config))
    if item.config.getoption("usepdb", False):
        prompts.install(item.config)
    if hypothesis_tests.is_one(item):
        hypothesis_tests.adapt_settings(item)
    item.stash[items.KEY] = test
    vars(item).update({name: getattr(test, name) for name in OVERRIDES})
    try:
        yield
    finally:
        for name in OVERRIDES:
            vars(item).pop(name, None)
        del item.stash[items.KEY]


def rank_of(request: pytest.FixtureRequest) -> int:
    """The rank of this thread, or the one that a world without peers is seen from."""
    rank = current_rank()
    if rank is None:
        case = request.node.stash[items.KEY].case
        rank = case.rank
    assert rank is not None, "function-scoped fixtures of a marked test are set up by its ranks"
    return rank
