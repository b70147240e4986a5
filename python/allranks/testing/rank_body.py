"""A pytest item as one rank runs it: the rank's own fixtures, request, instance, captured output and log.

All ranks use the same item object, so that plugins and fixtures know it; what differs between ranks is swapped with
them like everything else (see `allranks.isolation`): the item's attributes, the values of its function-scoped fixtures,
the stack of what has to be undone, the fixture that captures output. Wider fixtures, and `tmp_path`, are one for all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from allranks import runtime
from allranks._allranks import RLock, current_rank
from allranks.testing import descriptors, pytest_names, rank_log, tools
from allranks.testing.decorator import outcome_of
from allranks.testing.runs import Body, Record

#: What the plugin puts on the item, and a rank must not see.
OVERRIDES = ("setup", "runtest", "teardown")


class ItemBody(Body):
    """Runs `item` on its ranks. `values` stand in for arguments that are drawn outside (hypothesis)."""

    def __init__(
        self,
        item: pytest.Function,
        on_failure: Callable[[pytest.Function, int, Record], None] | None,
        function: Callable[..., Any] | None = None,
        values: dict[str, Any] | None = None,
    ) -> None:
        self._item, self._on_failure, self._function, self._values = item, on_failure, function, values or {}
        self._own: _Own | None = None
        self._properties: list[list[Any]] = []

    def begin(self, rank: int) -> None:
        item, run = self._item, runtime.current()
        if self._own is None:  # The first rank to run makes everything private, for all.
            self._own = _Swapped(run.registry) if run is not None else _PutBack()
            self._make_private(self._own)
        state = _RankState(item, item.session._setupstate)
        setattr(item.session, pytest_names.SETUP_STATE, state)
        item._initrequest()
        item.user_properties = list(item.user_properties)
        self._properties.append(item.user_properties)
        rank_log.begin(item, rank)

    def _make_private(self, own: _Own) -> None:
        item = self._item
        own.attributes(item, _for_rank)
        own.attribute(item.session, pytest_names.SETUP_STATE)
        capture = item.config.pluginmanager.getplugin("capturemanager")
        if capture is not None:
            own.attribute(capture, pytest_names.CAPTURE_FIXTURE)
        rank_log.make_private(item, own)
        own.wrap(pytest_names.FixtureDef, "execute", functools.partial(_executing, item, own, RLock()))
        if isinstance(own, _Swapped):
            tools.install(own.registry)
            descriptors.install(own.registry)

    def setup(self, rank: int) -> None:
        rank_log.phase(self._item, "setup")
        self._item.setup()

    def call(self, rank: int) -> None:
        item: Any = self._item
        rank_log.phase(item, "call")
        if self._function is not None:
            fixtures = {name: item.funcargs[name] for name in item._fixtureinfo.argnames}
            self._function(**{**self._values, **fixtures})
        elif isinstance(item, pytest_names.TestCaseFunction):
            item.runtest()
            if item._excinfo:
                raise item._excinfo[0].value
        else:
            item.runtest()

    def teardown(self, rank: int) -> None:
        rank_log.phase(self._item, "teardown")
        state: Any = self._item.session._setupstate
        try:
            pytest_names.SetupState.teardown_exact(state.item_alone(), None)
        finally:
            if self._own is not None and rank_log.is_alone():
                self._own.put_back()

    def outcome_of(self, error: BaseException) -> str:
        return outcome_of(error)

    def failed(self, rank: int, record: Record) -> None:
        if self._on_failure is not None:
            self._on_failure(self._item, rank, record)

    def end(self) -> None:
        """After the run: a debugger may have left output uncaptured; and what ranks recorded is kept, each once."""
        capture = self._item.config.pluginmanager.getplugin("capturemanager")
        if capture is not None:
            capture.resume_global_capture()
        for properties in self._properties:
            self._item.user_properties += [one for one in properties if one not in self._item.user_properties]


def _for_rank(attributes: dict[str, Any]) -> dict[str, Any]:
    """An item's attributes as a rank begins with them."""
    copy = {name: value for name, value in attributes.items() if name not in OVERRIDES}
    copy["stash"] = pytest_names.stash_copy(attributes["stash"])
    instance = copy.pop("_instance", None)
    if instance is not None or not isinstance(getattr(copy.get("_obj"), "__self__", None), type | None):
        copy.pop("_obj", None)  # Bound to an instance: every rank gets its own.
    return copy


class _Own:
    """Makes things a rank's own."""

    def attribute(self, owner: Any, name: str, fresh: Callable[[Any], Any] | None = None) -> None:
        raise NotImplementedError

    def attributes(self, owner: Any, fresh: Callable[[Any], Any]) -> None:
        raise NotImplementedError

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        raise NotImplementedError

    def put_back(self) -> None:
        """After the only rank; where there are several, the end of the run does it."""


class _Swapped(_Own):
    """Among several ranks: slots of the run."""

    def __init__(self, registry: Any) -> None:
        self.registry = registry

    def attribute(self, owner: Any, name: str, fresh: Callable[[Any], Any] | None = None) -> None:
        self.registry.attribute(owner, name, fresh)

    def attributes(self, owner: Any, fresh: Callable[[Any], Any]) -> None:
        self.registry.attributes(owner, fresh)

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        self.registry.patches.wrap(owner, name, make)


class _PutBack(_Own):
    """For a rank that is alone: changed, and put back."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def attribute(self, owner: Any, name: str, fresh: Callable[[Any], Any] | None = None) -> None:
        before = getattr(owner, name)
        self._before.append((owner, name, before))
        setattr(owner, name, before if fresh is None else fresh(before))

    def attributes(self, owner: Any, fresh: Callable[[Any], Any]) -> None:
        self.attribute(owner, "__dict__", fresh)

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Nobody else is there: nothing to do."""

    def put_back(self) -> None:
        while self._before:
            owner, name, value = self._before.pop()
            setattr(owner, name, value)


class _RankState(pytest_names.SetupState):
    """What a rank has to undo. Of nodes above the item, and of shared fixtures, the session undoes it, at its time."""

    def __init__(self, item: pytest.Function, outer: Any) -> None:
        super().__init__()
        self._item, self._outer = item, outer
        self.stack.update(outer.stack)
        self.stack[item] = ([item.teardown], None)

    def addfinalizer(self, finalizer: Callable[[], object], node: Any) -> None:
        definition = getattr(getattr(finalizer, "func", None), "__self__", None)
        shared = isinstance(definition, pytest_names.FixtureDef) and pytest_names.is_shared(self._item, definition)
        if shared or node is not self._item:
            self._outer.addfinalizer(finalizer, node)
        else:
            super().addfinalizer(finalizer, node)

    def item_alone(self) -> Any:
        """The same without the nodes above, whose turn is later."""
        entry = self.stack[self._item]
        self.stack.clear()
        self.stack[self._item] = entry
        return self


def _executing(item: pytest.Function, own: _Own, lock: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """`FixtureDef.execute`: a function-scoped fixture is the rank's, any other is set up by one rank at a time."""

    @functools.wraps(original)
    def execute(self: Any, request: Any) -> Any:
        if current_rank() is None:
            return original(self, request)
        if pytest_names.is_shared(item, self):
            with lock:
                return original(self, request)
        value, undo = pytest_names.FIXTURE_ATTRIBUTES
        own.attribute(self, value)
        own.attribute(self, undo, list)
        return original(self, request)

    return execute
