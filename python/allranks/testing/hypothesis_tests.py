"""`@given`: hypothesis draws outside, once for all ranks, and every example is a run of its own.

So ranks agree on what is drawn, shrinking works as ever, and function-scoped fixtures are set up for each example.
"""

from __future__ import annotations

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
    context: Any = control._current_build_context  # type: ignore[attr-defined]  # Thread-local; assume() looks there.
    inner = handle.inner_test
    instance = item.instance

    def example(*args: Any, **values: Any) -> None:
        __tracebackhide__ = True
        bound, present = _bound(inner, instance, args), context.value

        def in_rank(**arguments: Any) -> None:
            with context.with_value(present):
                bound(**arguments)

        drawn = {name: value for name, value in values.items() if name not in item._fixtureinfo.argnames}
        run_ranks(in_rank, drawn)

    handle.inner_test = example
    try:
        item.obj(**{name: item.funcargs.get(name) for name in item._fixtureinfo.argnames})
    finally:
        handle.inner_test = inner


def _bound(inner: Callable[..., Any], instance: Any, args: tuple[Any, ...]) -> Callable[..., Any]:
    """The test itself, as a function of keywords; of a method, bound to the instance that hypothesis calls it on."""
    if instance is None or not args:
        return inner
    return inner.__get__(args[0])  # type: ignore[no-any-return]
