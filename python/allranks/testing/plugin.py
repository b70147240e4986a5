"""The pytest plugin: what every session loads. Imports neither torch nor the rest, until a test is marked."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

#: The parameter that holds the world size where a mark names several.
WORLD = "_allranks_world"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the command line and of the ini file."""
    group = parser.getgroup("allranks", "distributed tests in one process")
    group.addoption(
        "--allranks", action="store_true", help="run torch's distributed test classes in this process (also ALLRANKS=1)"
    )
    group.addoption(
        "--allranks-seed", type=int, metavar="S", help="seed of every test marked allranks, whatever its mark says"
    )
    group.addoption(
        "--allranks-schedule",
        choices=("round-robin", "random"),
        help="schedule of every test marked allranks, whatever its mark says",
    )
    group.addoption(
        "--allranks-clock",
        choices=("virtual", "real"),
        default="virtual",
        help="whether sleeps and time-outs of torch's test classes take time under --allranks (default: virtual, no)",
    )
    parser.addini("allranks_seed", "seed of tests marked allranks that name none", default="")
    parser.addini("allranks_schedule", "schedule of tests marked allranks that name none", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Makes the mark known; the flag brings the drop-in for torch's test classes."""
    config.addinivalue_line(
        "markers", "allranks(world_size, **options): run the test as all ranks of a world, in this process"
    )
    if config.getoption("allranks") or os.environ.get("ALLRANKS", "") not in ("", "0"):
        from allranks.testing.dropin import hooks

        config.pluginmanager.register(hooks.Plugin(config), "allranks-dropin")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each world size; a mark that is wrong is an error of the collection."""
    if metafunc.definition.get_closest_marker("allranks") is None:
        return
    from allranks.testing import collecting

    sizes = collecting.world_sizes(metafunc)
    if len(sizes) > 1:
        metafunc.fixturenames.append(WORLD)
        metafunc.parametrize(WORLD, sizes, indirect=True, ids=[f"{size}ranks" for size in sizes])


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """unittest's methods are not generated: their marks are looked at here."""
    report = yield
    if any(getattr(item, "nofuncargs", False) and item.get_closest_marker("allranks") for item in report.result or ()):
        from allranks.testing import collecting

        collecting.check_methods(report, collector.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """A marked test is run by `items.MarkedTest`."""
    if not isinstance(item, pytest.Function) or item.get_closest_marker("allranks") is None:
        return (yield)
    from allranks.testing import collecting

    with collecting.taken_over(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """What failed while a rank was set up is an error of the setup; a failure says what the ranks did."""
    if not isinstance(item, pytest.Function) or item.get_closest_marker("allranks") is None:
        return (yield)
    from allranks.testing import items

    test = item.stash.get(items.KEY, None)
    if test is not None and call.excinfo is not None and call.when == "call" and test.verdict.stage == "setup":
        call.when = "setup"
    report = yield
    if test is not None and report.failed and call.excinfo is not None:
        test.explain(report, report.when)
    return report


@pytest.fixture
def rank(request: pytest.FixtureRequest) -> int:
    """The rank that this is, in a test marked allranks."""
    _marked(request, "rank")
    from allranks.testing import collecting

    return collecting.rank_of(request)


@pytest.fixture
def world_size(request: pytest.FixtureRequest) -> int:
    """The number of ranks, in a test marked allranks."""
    return _marked(request, "world_size").world_size


@pytest.fixture
def _allranks_world(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def _marked(request: pytest.FixtureRequest, name: str) -> Any:
    from allranks.testing import items

    test = request.node.stash.get(items.KEY, None)
    if test is None or test.case is None:
        pytest.fail(f"the fixture {name!r} is for tests marked @pytest.mark.allranks(world_size=...)", pytrace=False)
    return test.case
