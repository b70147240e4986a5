"""Thread-local variables that importing a package sets: a process has them on its main thread, so each rank must.

    _state = threading.local()
    _state.depth = 0  # Executed by the import, so there for the importing thread alone.

A shared package is imported once, by one thread. What its modules then have in a plain `threading.local`, at module
level or as an attribute of a class, is given to the main thread of every rank; lists, dicts and sets as copies. Nothing
is taken away or replaced, and other threads get nothing, as in any process. Subclasses of `threading.local` need no
help if they set their values in `__init__`, which runs on each thread. The user's modules need none either: each rank
imports its own.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from allranks.isolation.registry import Registry
from allranks.isolation.threads import RankThread

Found = tuple[Any, dict[str, Any]]

_seen: set[str] = set()
_found: list[Found] = []


def note() -> None:
    """Looks through the modules that were not there at the last call, for variables that this thread has.

    To be called on the thread that imported them, while no import is going on.
    """
    for name, module in list(sys.modules.items()):
        if name not in _seen:
            _seen.add(name)
            _found.extend(_set_by(module))


def install(registry: Registry) -> None:
    """Gives every rank what is set by now, and later what imports by other ranks set."""
    note()
    given = list(_found)
    registry.at_rank_start.append(lambda _: _give(given))
    registry.at_import.append(_Later(registry).imported)


class _Later:
    """Variables of packages that a rank imports: the others get them when their turn comes."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._found: list[Found] = []
        self._done = [0] * registry.world_size

    def imported(self, module: ModuleType) -> None:
        """A rank has just imported this shared module."""
        if not isinstance(threading.current_thread(), RankThread):
            return  # A main thread has nothing of it in a process of its own either.
        if found := list(_set_by(module)):
            self._found.extend(found)
            self._registry.call(self._catch_up, lambda _: None, key="thread-local variables")

    def _catch_up(self) -> None:
        """Called on the thread whose turn it is."""
        thread = threading.current_thread()
        if isinstance(thread, RankThread) and self._done[thread.rank] < len(self._found):
            new, self._done[thread.rank] = self._found[self._done[thread.rank] :], len(self._found)
            _give(new)


def _set_by(module: ModuleType) -> Iterator[Found]:
    """The plain `threading.local` objects of a module in which the calling thread has something."""
    namespace = getattr(module, "__dict__", None)  # `sys.modules` may hold anything.
    if not isinstance(namespace, dict):
        return
    for value in list(namespace.values()):
        kind = type(value)
        if kind is threading.local:
            if value.__dict__:
                yield value, _own(value.__dict__)
        elif issubclass(kind, type) and value.__dict__.get("__module__") == namespace.get("__name__"):
            for attribute in list(value.__dict__.values()):
                if type(attribute) is threading.local and attribute.__dict__:
                    yield attribute, _own(attribute.__dict__)


def _give(found: list[Found]) -> None:
    for local, values in found:
        mine = local.__dict__
        for name, value in values.items():
            if name not in mine:
                mine[name] = _own(value)


def _own(value: Any) -> Any:
    """Containers as copies, their contents too; anything else as it is."""
    if type(value) is dict:
        return {key: _own(one) for key, one in value.items()}
    if type(value) is list:
        return [_own(one) for one in value]
    return set(value) if type(value) is set else value
