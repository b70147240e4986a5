"""Attributes of torch that are replaced while one-rank mode is on, and put back afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MISSING = object()


class Patches:
    """A stack of replacements. Replacing one thing twice is fine: undoing goes backwards."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replaces `owner.name`; remembers that it was absent (or inherited) if it was."""
        before = vars(owner).get(name, _MISSING)
        self._undo.append(lambda: delattr(owner, name) if before is _MISSING else setattr(owner, name, before))
        setattr(owner, name, value)

    def wrap(self, owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Replaces a function by `make(function)`, if there is one of that name."""
        original = getattr(owner, name, None)
        if original is not None:
            self.set(owner, name, make(original))

    def set_item(self, mapping: dict[str, Any], key: str, value: Any) -> None:
        """Replaces an entry that is there."""
        before = mapping[key]
        self._undo.append(lambda: mapping.update({key: before}))
        mapping[key] = value

    def on_undo(self, action: Callable[[], None]) -> None:
        """Something else to do when all is put back."""
        self._undo.append(action)

    def undo(self) -> None:
        """Puts everything back."""
        while self._undo:
            self._undo.pop()()
