"""`--pdb`: the prompt opens in the rank that failed, where it failed, while the others stand."""

from __future__ import annotations

import bdb
from typing import Any

import pytest

from allranks.testing.runs import Record

_KEY = pytest.StashKey[list[BaseException]]()


def stop_in_rank(item: pytest.Function, rank: int, record: Record) -> None:
    """On the rank's thread. Does what pytest does on its own thread afterwards, and sees to it that it does not."""
    invoke = item.config.pluginmanager.getplugin("pdbinvoke")
    error = record.error
    if error is None or isinstance(error, bdb.BdbQuit) or not isinstance(invoke, InRanks):
        return
    shown = item.config.stash.setdefault(_KEY, [])
    if any(one is error for one in shown):
        return

    def again() -> None:
        raise error

    call = pytest.CallInfo.from_call(again, "call", reraise=(KeyboardInterrupt, pytest.exit.Exception))
    report = pytest.TestReport.from_item_and_call(item, call)
    if getattr(report, "wasxfail", None) is None:
        shown.append(error)
        invoke.inner.pytest_exception_interact(item, call, report)


class InRanks:
    """In place of pytest's plugin: the same, but for errors that were looked at in their rank."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def pytest_exception_interact(self, node: Any, call: Any, report: Any) -> None:
        """Everything that did not happen in a rank."""
        error = call.excinfo.value if call.excinfo is not None else None
        shown = node.config.stash.get(_KEY, [])
        if not any(one is error for one in shown):
            self.inner.pytest_exception_interact(node, call, report)

    def pytest_internalerror(self, excinfo: Any) -> None:
        """As ever."""
        self.inner.pytest_internalerror(excinfo)


def install(config: pytest.Config) -> None:
    """Before the first marked test, under `--pdb`."""
    manager = config.pluginmanager
    inner = manager.getplugin("pdbinvoke")
    if inner is not None and not isinstance(inner, InRanks):
        manager.unregister(inner)
        manager.register(InRanks(inner), "pdbinvoke")
