"""`@given`: hypothesis draws outside, once for all ranks, and every example is a run of its own.

So ranks agree on what is drawn, shrinking works as ever, and function-scoped fixtures are set up for each example.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import pytest

Runner = Callable[[Callable[..., Any], dict[str, Any]], None]


def is_one(item: Any) -> bool:
    """Whether hypothesis wraps the item's function."""
    module = sys.modules.get("hypothesis")
    return module is not None and bool(module.is_hypothesis_test(item.obj))


def adapt_settings(item: pytest.Function) -> None:
    """Hypothesis warns of function-scoped fixtures because it would not set them up again: here they are. And what it
    says of the lines that only failing examples ran would be of this thread, not of the ranks'."""
    from hypothesis import HealthCheck, Phase, settings

    function = getattr(item.obj, "__func__", item.obj)
    given: Any = getattr(function, "_hypothesis_internal_use_settings", settings.default)
    allowed = {HealthCheck.function_scoped_fixture, HealthCheck.differing_executors, *given.suppress_health_check}
    function._hypothesis_internal_use_settings = settings(
        given,
        suppress_health_check=sorted(allowed, key=lambda check: check.name),
        phases=[phase for phase in given.phases if phase is not Phase.explain],
    )


def run(item: Any, run_ranks: Runner) -> None:
    """Runs the item's function on this thread, with the test inside it replaced by runs on the ranks."""
    __tracebackhide__ = True
    from hypothesis import control

    handle = item.obj.hypothesis
    inner = handle.inner_test
    parameters = inspect.signature(inner).parameters
    context: Any = control._current_build_context  # type: ignore[attr-defined]  # Thread-local; assume() looks there.

    def example(*_instance: Any, **values: Any) -> None:
        __tracebackhide__ = True
        present = context.value

        def in_rank(**arguments: Any) -> None:
            test = inner if item.instance is None else inner.__get__(item.instance)  # The rank's own instance.
            with context.with_value(present):
                test(**arguments)

        given = {*item._fixtureinfo.argnames, *([] if item.instance is None else [next(iter(parameters))])}
        drawn = {name: value for name, value in values.items() if name not in given}
        run_ranks(in_rank, drawn)

    handle.inner_test = example
    try:
        item.obj(**{name: item.funcargs.get(name) for name in item._fixtureinfo.argnames})
    finally:
        handle.inner_test = inner
