"""Replacements in other packages, for the time of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_ABSENT = object()


class Patches:
    """Attributes that were set on objects of other packages, so that they can be put back."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replaces `owner.name`."""
        self._done.append((owner, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, value)

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replaces `owner.name` by `make(original)`; does nothing where this Python or torch has no such name."""
        original = getattr(owner, name, None)
        if original is not None:
            self.set(owner, name, make(original))

    def everywhere(self, original: Any, replacement: Any, modules: list[Any]) -> None:
        """Replaces a function in all modules that bound it under any name."""
        for module in modules:
            for name, value in list(vars(module).items()):
                if value is original:
                    self.set(module, name, replacement)

    def undo(self) -> None:
        """Puts everything back, newest first."""
        while self._done:
            owner, name, value = self._done.pop()
            if value is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
