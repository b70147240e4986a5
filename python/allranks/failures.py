"""How a rank's uncaught exception is shown: as Python would, without our frames, with the rank before each line."""

from __future__ import annotations

import io
import os
import sys
import traceback
import types
from typing import Any

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


def without_our_frames(tb: types.TracebackType | None) -> types.TracebackType | None:
    """The traceback with every frame of this package taken out."""
    while tb is not None and _is_ours(tb):
        tb = tb.tb_next
    at = tb
    while at is not None:
        after = at.tb_next
        while after is not None and _is_ours(after):
            after = after.tb_next
        at.tb_next = after
        at = after
    return tb


def _is_ours(tb: types.TracebackType) -> bool:
    file = tb.tb_frame.f_code.co_filename
    return file.startswith((_OURS, "<frozen importlib"))


def clean(error: BaseException) -> None:
    """Takes our frames out of the error and of the errors that it came from."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        whole = one.__traceback__
        one.__traceback__ = without_our_frames(whole) or (whole if one is not error else None)
        todo += [one.__cause__, one.__context__]


def place_of(error: BaseException) -> tuple[str | None, int, str]:
    """File, line and function of the user's code that the error came through last."""
    from allranks.isolation.modules import is_users_file

    best: tuple[str | None, int, str] = (None, 0, "")
    tb = error.__traceback__
    while tb is not None:
        code = tb.tb_frame.f_code
        name = code.co_filename
        typed_in = name.startswith("<") and not name.startswith("<frozen")  # A prompt, a notebook, `python -c`.
        if typed_in or (not _is_ours(tb) and (os.path.isabs(name) or os.path.exists(name))):
            if typed_in or is_users_file(name) or best[0] is None:
                best = (name, tb.tb_lineno, code.co_name)
        tb = tb.tb_next
    if best[0] is None and isinstance(error, SyntaxError) and error.filename:
        return (error.filename, error.lineno or 0, "<module>")
    return best


class Reporter:
    """Prints failures of ranks; what an earlier rank printed word for word is only named."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def show(self, rank: int, error: BaseException) -> None:
        """On the rank's thread: through its own `sys.excepthook`."""
        clean(error)
        hook = sys.excepthook
        if hook is not sys.__excepthook__ and not _is_torchs(hook):
            try:
                hook(type(error), error, error.__traceback__)
            except SystemExit:
                pass
            except Exception as broken:
                _write(rank, "Error in sys.excepthook:\n" + "".join(traceback.format_exception(broken)))
                _write(rank, "Original exception was:\n" + "".join(traceback.format_exception(error)))
            return
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        first = self._seen.setdefault(text, rank)
        if first != rank:
            last = text.rstrip().rsplit("\n", 1)[-1]
            text = f"the same traceback as rank {first}: {last}\n"
        _write(rank, text)


def _is_torchs(hook: Any) -> bool:
    """torch puts `[rankN]: ` before each line, as we do."""
    return getattr(hook, "__module__", "") == "torch.distributed.distributed_c10d"


def _write(rank: int, text: str) -> None:
    stream = sys.stderr or io.StringIO()
    lines = [f"[rank{rank}]: {line}" if line else "" for line in text.split("\n")]
    try:
        stream.write("\n".join(lines))
        stream.flush()
    except Exception:
        print("\n".join(lines), file=sys.__stderr__)
