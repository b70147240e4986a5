"""`allranks.test`: a function or a unittest method that runs as all ranks when it is called."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import unittest
import warnings
from collections.abc import Callable
from typing import Any

from allranks import _allranks, launch
from allranks.testing import marks, verdicts
from allranks.testing.runs import Body, run

_GIVEN = ("rank", "world_size")


class FindingWarning(UserWarning):
    """A finding that is no error."""


def refuse_launcher() -> None:
    """Under torchrun and the like, every process would play all ranks: raises RuntimeError."""
    if refusal := _allranks.launch_refusal():
        raise RuntimeError(f"{refusal}; start the tests by themselves, not under a launcher")


def test(asked: marks.Asked) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """See `allranks.test`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., None]:
        if isinstance(function, type) or not callable(function):
            raise TypeError(f"allranks.test decorates functions and methods, not {function!r}")
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"{function.__name__} is async; let it call asyncio.run itself")
        if getattr(function, "is_hypothesis_test", False):
            raise TypeError(f"{function.__name__}: @given goes above @allranks.test, so that all ranks draw the same")
        signature = inspect.signature(function)
        given = [name for name in _GIVEN if name in signature.parameters]

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            refuse_launcher()
            sub_test = getattr(args[0], "subTest", None) if args and len(asked.world_sizes) > 1 else None
            for world_size in asked.world_sizes:
                with sub_test(world_size=world_size) if sub_test else contextlib.nullcontext():
                    for case in asked.cases(world_size):
                        _run(case, _Call(function, args, kwargs, given, case))

        kept = [parameter for name, parameter in signature.parameters.items() if name not in given]
        wrapper.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return wrapper

    return decorate


def _run(case: marks.Case, body: Body) -> None:
    __tracebackhide__ = True
    verdict = verdicts.judge(run(case, body), launch.RankFailed, repeat_text(case))
    for text in verdict.warnings:
        warnings.warn(text, FindingWarning, stacklevel=3)
    if verdict.error is not None:
        if verdict.text:
            verdicts.note(verdict.error, f"allranks, world size {case.world_size}:\n{verdict.text}")
        raise verdict.error


def repeat_text(case: marks.Case) -> str:
    """What the run depended on, beside the program."""
    if case.rank is not None:
        return f"run as rank {case.rank} alone of {case.world_size}"
    return f"the same again: world_size={case.world_size}, schedule={case.schedule!r}, seed={case.seed}"


class _Call(Body):
    def __init__(
        self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any], given: list[str], case: marks.Case
    ) -> None:
        self._function, self._args, self._kwargs, self._given, self._case = function, args, kwargs, given, case

    def call(self, rank: int) -> Any:
        known = {"rank": rank, "world_size": self._case.world_size}
        ours = {name: known[name] for name in self._given if name not in self._kwargs}
        return self._function(*self._args, **self._kwargs, **ours)

    def outcome_of(self, error: BaseException) -> str:
        return outcome_of(error)


def outcome_of(error: BaseException) -> str:
    """What an error means: "failed", "skipped" or "xfailed". Knows pytest's exceptions only if pytest is loaded."""
    outcomes = sys.modules.get("_pytest.outcomes")
    if isinstance(error, unittest.SkipTest) or (outcomes is not None and isinstance(error, outcomes.Skipped)):
        return "skipped"
    return "xfailed" if outcomes is not None and isinstance(error, outcomes.XFailed) else "failed"
