"""What pytest's logging plugin keeps of a test: for each rank its own `caplog`, and lines that say whose they are."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from allranks._allranks import current_rank
from allranks.testing import pytest_names


class _Tagged(logging.Formatter):
    """Puts the rank before each record."""

    def __init__(self, inner: logging.Formatter | None, rank: int) -> None:
        super().__init__()
        self._inner, self._rank = inner or logging.Formatter(), rank

    def format(self, record: logging.LogRecord) -> str:
        return f"[rank {self._rank}] {self._inner.format(record)}"


def is_alone() -> bool:
    """This thread is no rank among others."""
    return current_rank() is None


def make_private(item: pytest.Function, own: Any) -> None:
    """The handlers of the test stay the same objects, wherever they are attached, with a rank's own inside."""
    plugin = pytest_names.log_plugin(item.config)
    if plugin is not None and not is_alone():
        for handler in (plugin.caplog_handler, plugin.report_handler):
            own.attributes(handler, dict)


def begin(item: pytest.Function, rank: int) -> None:
    """Gives the rank what is inside. A rank that is alone keeps the test's."""
    plugin = pytest_names.log_plugin(item.config)
    if plugin is None or is_alone():
        return
    plugin.report_handler.createLock()
    plugin.report_handler.setFormatter(_Tagged(plugin.report_handler.formatter, rank))
    plugin.caplog_handler.createLock()
    item.stash[pytest_names.CAPLOG_RECORDS] = {}


def phase(item: pytest.Function, when: str) -> None:
    """Records from now on belong to `when`."""
    plugin = pytest_names.log_plugin(item.config)
    if plugin is not None and not is_alone():
        plugin.caplog_handler.reset()
        item.stash[pytest_names.CAPLOG_RECORDS][when] = plugin.caplog_handler.records
