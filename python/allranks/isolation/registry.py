"""Adds slots to the swapper: lazily, once each, with copies for every rank where a value is changed in place."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from allranks._allranks import Swapper, current_rank
from allranks.isolation.patches import Patches

Fresh = Callable[[Any], Any]


class Registry:
    """What is private to a rank in this run, and what was replaced for it."""

    def __init__(self, world_size: int, seed: int = 0) -> None:
        self.world_size = world_size
        self.seed = seed
        self.swapper = Swapper(world_size)
        self.patches = Patches()
        #: Called on each rank's own thread before its program, with its state in place.
        self.at_rank_start: list[Callable[[int], None]] = []
        #: Called there after its program, last added first.
        self.at_rank_end: list[Callable[[int], None]] = []
        #: Called on every further thread of a rank, with what `at_thread_start` of the starting thread returned.
        self.thread_state: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        #: Called with each shared module of Python that a rank has imported, on the importing thread.
        self.at_import: list[Callable[[ModuleType], None]] = []
        self.at_close: list[Callable[[], None]] = []
        self._known: dict[tuple[Any, ...], int] = {}
        self._kept: list[Any] = []  # `_known` is keyed by ids: what they name must live
        self._on_import: dict[str, list[Callable[[Any], None]]] = {}

    # Slots

    def entry(self, mapping: dict[Any, Any], key: Any, fresh: Fresh | None = None) -> int:
        """`mapping[key]`. `fresh` makes each rank's value of the present one; without it they begin with the same."""
        add = functools.partial(self.swapper.add_entry, mapping, key)
        return self._add(
            ("entry", id(mapping), key), mapping, add, fresh, lambda value: mapping.__setitem__(key, value)
        )

    def entries(self, mapping: dict[Any, Any], names: Iterable[str], fresh: Fresh | None = None) -> None:
        """Several entries; those that are absent are left out."""
        for name in names:
            if name in mapping:
                self.entry(mapping, name, fresh)

    def attribute(self, owner: Any, name: str, fresh: Fresh | None = None) -> int:
        """`owner.name`, as stored on the owner itself."""
        add = functools.partial(self.swapper.add_attribute, owner, name)
        return self._add(("attribute", id(owner), name), owner, add, fresh, lambda value: setattr(owner, name, value))

    def attributes(self, owner: Any, fresh: Fresh = dict) -> int:
        """All attributes of an instance: its `__dict__`, of which `fresh` makes a copy for each rank."""
        add = functools.partial(self.swapper.add_attributes, owner)
        return self._add(("attributes", id(owner)), owner, add, fresh, lambda value: setattr(owner, "__dict__", value))

    def call(self, read: Callable[[], Any], write: Callable[[Any], Any], *, key: Any) -> int:
        """State behind a pair of functions; `key` names it."""
        return self._add(("call", key), None, lambda: self.swapper.add_call(read, write), None, write)

    def memory(self, owner: Any, ranges: list[tuple[int, int]]) -> int:
        """Bytes at (address, length), valid while `owner` lives."""
        return self._add(("memory", id(owner)), owner, lambda: self.swapper.add_memory(owner, ranges), None, None)

    def has(self, kind: str, owner: Any, *name: Any) -> bool:
        """Whether that slot exists."""
        return (kind, id(owner), *name) in self._known

    def _add(
        self,
        identity: tuple[Any, ...],
        owner: Any,
        add: Callable[[], int],
        fresh: Fresh | None,
        write: Callable[[Any], Any] | None,
    ) -> int:
        known = self._known.get(identity)
        if known is not None:
            return known
        slot = self._known[identity] = add()
        self._kept.append(owner)
        if fresh is not None and write is not None:
            value, running = self.swapper.current(slot), current_rank()
            for rank in range(self.world_size):
                if rank != running:
                    self.swapper.set_value(slot, rank, fresh(value))
            if running is not None:
                write(fresh(value))
        return slot

    # When to add them

    def on_call(self, owner: Any, name: str, add: Callable[[], Any]) -> None:
        """At the first call of `owner.name` by any rank, before it takes effect: `add()`."""

        def make(original: Any) -> Any:
            @functools.wraps(original)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                if current_rank() is not None:
                    add()
                return original(*args, **kwargs)

            return wrapper

        self.patches.wrap(owner, name, make)

    def on_import(self, name: str, add: Callable[[Any], Any]) -> None:
        """As soon as the module `name` is imported (now, if it is): `add(module)`."""
        module = sys.modules.get(name)
        if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
            add(module)
        else:
            self._on_import.setdefault(name, []).append(add)

    def awaits_import(self, name: str) -> bool:
        """Whether somebody wants to know when `name` is imported."""
        return name in self._on_import

    def imported(self, name: str) -> None:
        """The import hook says that `name` is complete."""
        for add in self._on_import.pop(name, ()):
            add(sys.modules[name])

    def close(self) -> None:
        """After the run: everything as before."""
        for act in reversed(self.at_close):
            act()
        self.patches.undo()
        self.swapper.restore()
        self._known.clear()
        self._kept.clear()
