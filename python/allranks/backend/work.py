"""The `Work` of an operation in all-ranks mode, and what makes torch's wrapper around it answer questions.

torch wraps every Python `Work` in a C++ holder that forwards `wait` and `get_future` only. Whatever else a program asks
(`is_completed()`, `result()`, `_source_rank()`...) would get a default answer, so these methods of the C++ class are
replaced while a run is on; they find the Python object through `wait` with a time-out that no program uses.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Work

from allranks import _allranks
from allranks.backend.session import Session

_WHO_ARE_YOU = timedelta(days=-9_999)
_NO_TIMEOUT = timedelta(0)
_found: list[RankWork] = []


class RankWork(Work):
    """One rank's part of an operation that may not be complete yet."""

    def __init__(self, ticket: _allranks.Ticket, results: list[torch.Tensor], yield_now: Callable[[], None]) -> None:
        super().__init__()
        self._ticket = ticket
        self._results = results
        self._yield = yield_now
        self._future: torch.futures.Future[Any] | None = None
        self._guarded: tuple[torch.Tensor, int, Session] | None = None

    def guard(self, tensor: torch.Tensor, session: Session) -> None:
        """From now until `wait`, the program must not write to `tensor`."""
        if not tensor.is_inference():  # Such a tensor counts no versions.
            self._guarded = (tensor, tensor._version, session)

    def _check_guarded(self) -> None:
        if self._guarded is None:
            return
        tensor, version, session = self._guarded
        self._guarded = None
        if tensor._version != version:
            session.find(
                "buffer-race",
                "error",
                "a tensor was written to between isend and wait: the receiver gets old, new or mixed data",
                what="waits for the message",
                hints=["call wait() first, or send a copy"],
                rule="gloo, nccl: a buffer belongs to the operation until it is complete",
                more=[(self._ticket.rank, *self._ticket.site, "sends it")] if self._ticket.site else [],
            )

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        if timeout == _WHO_ARE_YOU:
            _found.append(self)
            return True
        # Zero is how torch says "the group's own"; that one is never waited for, since a stall is reported at once.
        seconds = timeout.total_seconds() if timeout > _NO_TIMEOUT else None
        self._check_guarded()
        if self._ticket.wait(seconds) != "done":
            raise RuntimeError("Operation timed out!")
        self._settle()
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        """The future of the result. C++ callers wait without handing over, so it is complete whenever it can be."""
        if self._future is None:
            self._future = torch.futures.Future()
            if self._ticket.wait(None, True) != "done":
                _unfinished.append(self)
        self._settle()
        return self._future

    def _settle(self) -> None:
        """Completes the future on this thread, which is one of the rank's own."""
        future = self._future
        if future is not None and not future.done() and self._ticket.is_done:
            future.set_result(self._results)

    # The methods below are reached through the replacements.

    def completed(self) -> bool:
        if not self._ticket.is_done:
            self._yield()  # A loop that polls must let the others run.
        if self._ticket.is_done:
            self._ticket.set_waited()
        return self._ticket.is_done

    def results(self) -> list[torch.Tensor]:
        self.wait()
        return self._results

    def source(self) -> int:
        source = self._ticket.source
        return -1 if source is None else source

    def sequence(self) -> int:
        return self._ticket.seq


_unfinished: list[RankWork] = []
"""Works whose future was handed out before the operation was complete; see `settle_futures`."""


def settle_futures() -> None:
    """Completes the futures of this rank's operations that are complete by now."""
    rank = _allranks.current_rank()
    for work in list(_unfinished):
        if work._ticket.rank == rank and work._ticket.is_done:
            _unfinished.remove(work)
            work._settle()


def _python_work(work: Work) -> RankWork | None:
    if isinstance(work, RankWork):
        return work
    _found.clear()
    try:
        _original["wait"](work, _WHO_ARE_YOU)
    except Exception:  # A Work that is not ours refuses a negative time-out, or times out.
        return None
    return _found.pop() if _found else None


_original: dict[str, Callable[..., Any]] = {}


def _replacement(name: str, ours: Callable[[RankWork], Any]) -> Callable[[Work], Any]:
    original = getattr(Work, name)
    _original[name] = original

    def method(self: Work, *args: Any, **kwargs: Any) -> Any:
        # Outside rank threads there is no Work of ours; asking would wait.
        found = _python_work(self) if _allranks.current_rank() is not None else None
        return original(self, *args, **kwargs) if found is None else ours(found)

    method.__name__ = name
    method.__doc__ = original.__doc__
    return method


def install() -> None:
    """Makes torch's wrapper answer; idempotent."""
    if _original:
        return
    _original["wait"] = Work.wait
    for name, ours in {
        "is_completed": RankWork.completed,
        "is_success": RankWork.completed,
        "result": RankWork.results,
        "synchronize": lambda w: w.wait() and None,
        "source_rank": RankWork.source,
        "_source_rank": RankWork.source,
        "_get_sequence_number": RankWork.sequence,
    }.items():
        if hasattr(Work, name):
            setattr(Work, name, _replacement(name, ours))
    future_wait = torch.futures.Future.wait
    future_done = torch.futures.Future.done

    def wait(self: torch.futures.Future[Any]) -> Any:
        while _unfinished and _allranks.current_rank() is not None and not future_done(self):
            mine = [w for w in _unfinished if w._future is self] or _unfinished
            mine[0]._ticket.wait(None)
            settle_futures()
        return future_wait(self)

    _original["future_wait"] = future_wait
    torch.futures.Future.wait = wait  # type: ignore[method-assign]


def uninstall() -> None:
    """Puts torch's own methods back."""
    if not _original:
        return
    torch.futures.Future.wait = _original.pop("future_wait")  # type: ignore[method-assign]
    _original.pop("wait")
    for name, method in _original.items():
        setattr(Work, name, method)
    _original.clear()
    _unfinished.clear()
