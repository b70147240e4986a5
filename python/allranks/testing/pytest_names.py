"""Every name of pytest that is not public and that the plugin relies on."""

from __future__ import annotations

from typing import Any

import pytest
from _pytest import fixtures, legacypath, logging, outcomes, runner, scope, tmpdir, unittest

#: The stack of what is set up; `session._setupstate` holds the one in use.
SetupState = runner.SetupState
SETUP_STATE = "_setupstate"
#: Its value and what to undo are attributes of the definition.
FixtureDef = fixtures.FixtureDef
FIXTURE_ATTRIBUTES = ("cached_result", "_finalizers")
#: `pytest.fail.Exception`, as a type that mypy knows.
Failed = outcomes.Failed
TestCaseFunction = unittest.TestCaseFunction
UnitTestCase = unittest.UnitTestCase
#: Where `capsys` and its like note that they are in use.
CAPTURE_FIXTURE = "_capture_fixture"
CAPLOG_RECORDS = logging.caplog_records_key
#: Fixtures of pytest that are one folder for all ranks, by the module of their function.
SHARED_FIXTURES = {("tmp_path", tmpdir.__name__), ("tmpdir", legacypath.__name__)}


def is_wide(item: pytest.Function, definition: Any) -> bool:
    """Whether a fixture is wider than one test, as this item asks for it."""
    callspec = getattr(item, "callspec", None)
    asked = callspec._arg2scope.get(definition.argname) if callspec is not None else None
    return bool((asked or definition._scope) is not scope.Scope.Function)


def is_shared(item: pytest.Function, definition: Any) -> bool:
    """Whether all ranks see one value of it."""
    return is_wide(item, definition) or (definition.argname, definition.func.__module__) in SHARED_FIXTURES


def definitions(item: pytest.Function, name: str) -> Any:
    """What `name` means to the item, innermost last; None if nothing."""
    return item._fixtureinfo.name2fixturedefs.get(name)


def stash_copy(stash: pytest.Stash) -> pytest.Stash:
    """Another stash with the same in it."""
    copy = pytest.Stash()
    copy._storage = dict(stash._storage)
    return copy


def log_plugin(config: pytest.Config) -> Any:
    """Holds `caplog_handler` and `report_handler`; None without the plugin."""
    return config.pluginmanager.getplugin("logging-plugin")
