"""Attributes of torch that are replaced while one-rank mode is on, and put back afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MISSING = object()


class Patches:
    """A stack of replaced attributes. Replacing one twice is fine: undoing goes backwards."""

    def __init__(self) -> None:
        self._saved: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replaces `owner.name`; remembers that it was absent if it was."""
        self._saved.append((owner, name, vars(owner).get(name, _MISSING)))
        setattr(owner, name, value)

    def wrap(self, owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Replaces a function by `make(function)`, if there is one of that name."""
        original = getattr(owner, name, None)
        if original is not None:
            self.set(owner, name, make(original))

    def undo(self) -> None:
        """Puts everything back."""
        while self._saved:
            owner, name, value = self._saved.pop()
            if value is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
