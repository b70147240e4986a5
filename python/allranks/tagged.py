"""`--tag-output`: each line that a rank prints says whose it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class TaggedStream:
    """A text stream that puts `[rank R] ` before each line; everything else is the stream's own."""

    def __init__(self, stream: Any, rank: int) -> None:
        self._stream, self._tag, self._pending, self._inside = stream, f"[rank {rank}] ", "", False

    def write(self, text: str) -> int:
        """Whole lines are passed on; the rest waits for its end, or for `flush`, so that ranks do not mix in a line."""
        *lines, self._pending = (self._pending + text).split("\n")
        for line in lines:
            self._stream.write(f"{'' if self._inside else self._tag}{line}\n")
            self._inside = False
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """As `write`, one after the other."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Passes on an unfinished line too."""
        if self._pending:
            self._stream.write(f"{'' if self._inside else self._tag}{self._pending}")
            self._pending, self._inside = "", True
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
