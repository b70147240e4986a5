"""The drop-in as pytest sees it; registered when `--allranks` or ALLRANKS=1 is given."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from allranks import on_import
from allranks.testing.dropin import names
from allranks.testing.dropin.ledger import Ledger


class Plugin:
    """Starts the zygote after collection, and says at the end how tests ran."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._ledger = Ledger()
        self._zygote: Any = None
        self._state: Any = None
        # Before any test module binds what is replaced.
        self._stop_watching = on_import.watch({names.MODULE: self._bases_imported})

    def _bases_imported(self, module: Any) -> None:
        from allranks.testing.dropin import bases

        self._state = bases.State(self._ledger, {"clock": self._config.getoption("allranks_clock", "virtual")})
        bases.install(self._state, module)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """All modules are imported, nothing has run."""
        self._stop_watching()
        if self._state is None or self._state.refusal is not None or self._config.option.collectonly:
            return
        if any(names.is_base(getattr(item, "cls", None)) for item in session.items):
            from allranks.testing.dropin.zygote import Zygote

            self._zygote = self._state.zygote = Zygote.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Which test it is."""
        self._ledger.current = item.nodeid
        return (yield)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker of xdist hands its ledger to the one who prints."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["allranks"] = self._ledger.dump()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        """A worker of xdist has ended."""
        dumped = getattr(node, "workeroutput", {}).get("allranks")
        if dumped is not None:
            self._ledger.add(dumped)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """One line, and one for each test that ran as processes."""
        lines = self._ledger.summary(self._config.option.verbose > 0)
        if lines:
            terminalreporter.section("allranks")
            for line in lines:
                terminalreporter.write_line(line)

    def pytest_unconfigure(self) -> None:
        """Nothing of it outlives pytest."""
        if self._zygote is not None:
            self._zygote.stop()
            self._zygote = None
