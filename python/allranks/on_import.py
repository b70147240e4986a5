"""Something to do when a module is imported: a program that never needs it does not pay for it. Imports no torch."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

Action = Callable[[ModuleType], None]


class _Watcher(importlib.abc.MetaPathFinder):
    """Lets the real finders find a module, and acts once it is executed."""

    def __init__(self) -> None:
        self.actions: dict[str, Action] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.actions:
            return None
        action = self.actions.pop(fullname)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            action(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def watch(actions: dict[str, Action]) -> Callable[[], None]:
    """Runs each action on its module: now if it is imported already, else when it is. Call the result to stop."""
    watcher = _Watcher()
    for name, action in actions.items():
        if name in sys.modules:
            action(sys.modules[name])
        else:
            watcher.actions[name] = action
    if not watcher.actions:
        return lambda: None
    sys.meta_path.insert(0, watcher)

    def stop() -> None:
        watcher.actions.clear()
        if watcher in sys.meta_path:
            sys.meta_path.remove(watcher)

    return stop
