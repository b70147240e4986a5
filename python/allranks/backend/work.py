"""The `Work` of an operation in all-ranks mode, and what makes torch's wrapper around it answer questions.

torch wraps every Python `Work` in a C++ holder that forwards `wait` and `get_future` only. Whatever else a program asks
(`is_completed()`, `result()`, `_source_rank()`...) would get a default answer, so these methods of the C++ class are
replaced while a run is on; they find the Python object through `wait` with a time-out that no program uses.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from datetime import timedelta
from operator import methodcaller
from typing import Any

import torch
from torch._C._distributed_c10d import Work

from allranks import _allranks
from allranks.backend.deadlines import BROKEN
from allranks.backend.session import Session
from allranks.isolation.torch_names import in_backward

_WHO_ARE_YOU = timedelta(days=-9_999)
_NO_TIMEOUT = timedelta(0)
_found: list[RankWork] = []


_SUMS = frozenset(("reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_coalesced"))
"""With gloo their Work is a function to be called by `wait`: it is never complete, and has no future."""
_MESSAGES = frozenset(("send", "recv"))
"""With gloo their Work has no future either."""
_OP_TYPES = {
    "broadcast": 0,
    "all_reduce": 1,
    "all_reduce_coalesced": 2,
    "reduce": 3,
    "all_gather": 4,
    "all_gather_into_tensor": 4,
    "all_gather_coalesced": 6,
    "gather": 7,
    "scatter": 8,
    "all_to_all": 11,
    "all_to_all_single": 11,
    "send": 12,
    "recv": 13,
    "barrier": 15,
    "all_reduce_sparse": 18,
}
"""c10d's OpType as gloo fills it in; others are UNKNOWN."""
_UNKNOWN = 100


def _future_of(outcome: Callable[[], Any]) -> tuple[torch.futures.Future[Any], torch.futures.Future[Any]]:
    """A future that ends as `outcome` does, and the one that has to be completed for that.

    `set_exception` will not do: it makes the exception the value, which only the same Python object would raise.
    """
    start: torch.futures.Future[Any] = torch.futures.Future()
    return start, start.then(lambda _: outcome())


class RankWork(Work):
    """One rank's part of an operation that may not be complete yet.

    `then` is called on this rank when it is, once. `gloo` is the size of the group if the answers are to be gloo's.
    """

    def __init__(
        self,
        ticket: _allranks.Ticket,
        kind: str,
        results: list[Any],
        then: Callable[[], None] | None = None,
        gloo: int = 0,
    ) -> None:
        super().__init__()
        self._ticket = ticket
        self._kind = kind
        self._results = results
        self._then = then
        self._gloo = gloo
        self._error: BaseException | None = None
        self._start: torch.futures.Future[Any] | None = None
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
        # Zero is how torch says "the group's own". gloo's sums know no other.
        own = timeout <= _NO_TIMEOUT or (self._gloo and self._kind in _SUMS)
        self._check_guarded()
        self._await(None if own else timeout.total_seconds())
        if self._error is not None:
            raise self._error
        return True

    def _await(self, seconds: float | None) -> None:
        message = bool(self._gloo) and self._kind in _MESSAGES
        if message and self._ticket.failure is not None:
            self._error = RuntimeError(BROKEN if self._error is not None else self._ticket.failure)
            return
        try:
            done = self._ticket.wait(seconds, fails=message) == "done"
        except RuntimeError:
            done = True  # Why it failed is in the ticket.
        if not done:
            raise RuntimeError("Operation timed out!")
        self._settle()

    def get_future(self) -> torch.futures.Future[Any]:
        """The future of the result. C++ callers wait without handing over, so it is complete whenever it can be.

        In a backward pass it always is: DDP waits for it there, and nobody else could run meanwhile.
        """
        if self._gloo and self._kind in _SUMS | _MESSAGES:
            raise RuntimeError("Work::getFuture not implemented.")
        if self._future is None:
            with contextlib.suppress(RuntimeError):  # It failed: the future says so.
                self._ticket.wait(None, soft=not in_backward())
            self._settle()
            self._start, self._future = _future_of(self._outcome)
            if not self._ticket.is_done:
                _unfinished.append(self)
        self._settle()
        return self._future

    def _settle(self) -> None:
        """What follows on completion, on this thread, which is one of the rank's own."""
        if not self._ticket.is_done:
            return
        then, self._then = self._then, None
        failure = self._ticket.failure
        if failure is not None:
            self._error = self._error or RuntimeError(failure)
        elif then is not None:
            try:
                then()
            except Exception as error:
                self._error = error
        start, self._start = self._start, None
        if start is not None:
            start.set_result(None)

    def _outcome(self) -> list[Any]:
        if self._error is not None:
            raise self._error
        return self._value()

    def _value(self) -> list[Any]:
        """Results in the backend's shape: gloo gathers into chunks of the one tensor that it is given."""
        if self._gloo and self._kind == "all_gather_into_tensor":
            return list(self._results[0].chunk(self._gloo))
        return self._results

    # The methods below are reached through the replacements.

    def completed(self) -> bool:
        if not self._ticket.is_done:
            self._ticket.poll()  # A loop that asks must let the others run.
        if self._ticket.is_done:
            self._ticket.set_waited()
            self._settle()
        return self._ticket.is_done and not (self._gloo and self._kind in _SUMS)

    def success(self) -> bool:
        return self.failure() is None

    def failure(self) -> BaseException | None:
        self.completed()
        return None if self._gloo and self._kind in _SUMS else self._error

    def results(self) -> list[Any]:
        if self._gloo and self._kind in _SUMS | _MESSAGES:
            raise RuntimeError("result() not implemented.")
        if not self._failed():
            self.wait()
        return self._value()

    def source(self) -> int:
        if self._kind != "recv":
            raise RuntimeError("sourceRank() may only be called on work objects that correspond to a recv")
        source = self._ticket.source
        return -1 if source is None else source

    def sequence(self) -> int:
        if self._gloo and self._kind in _SUMS:
            raise RuntimeError("This Backend doesn't support getSequencenumber.")
        return self._ticket.seq

    def synchronize_(self) -> None:
        if not self._failed():
            self.wait()

    def _failed(self) -> bool:
        return self._ticket.failure is not None

    def op_type(self) -> int:
        return _OP_TYPES.get(self._kind, _UNKNOWN)


class RefusedWork(RankWork):
    """An asynchronous operation that the backend takes although its worker fails at once."""

    def __init__(self, kind: str, error: BaseException) -> None:
        Work.__init__(self)
        self._kind = kind
        self._error = error

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        if timeout == _WHO_ARE_YOU:
            _found.append(self)
            return True
        assert self._error is not None
        raise self._error

    def get_future(self) -> torch.futures.Future[Any]:
        start, future = _future_of(self._outcome)
        start.set_result(None)
        return future

    def completed(self) -> bool:
        return self._kind not in _SUMS

    def failure(self) -> BaseException | None:
        return self._error if self.completed() else None

    def results(self) -> list[Any]:
        self.wait()
        return []

    def sequence(self) -> int:
        return 0


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


_OUR_ERROR = re.compile(
    rf"Got the following error when running the callback: RuntimeError: (.*)\n\nAt:\n  {re.escape(__file__)}\(",
    re.DOTALL,
)


def _told_plainly(ask: Callable[[Any], Any], future: torch.futures.Future[Any]) -> Any:
    """What `ask` says of the future; an error of ours without the words that torch puts around it."""
    try:
        return ask(future)
    except RuntimeError as error:
        ours = _OUR_ERROR.match(str(error))
        if ours is None:
            raise
        raise RuntimeError(ours[1]) from None


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
        "is_completed": "completed",
        "is_success": "success",
        "exception": "failure",
        "result": "results",
        "synchronize": "synchronize_",
        "source_rank": "source",
        "_source_rank": "source",
        "_get_sequence_number": "sequence",
        "_get_op_type": "op_type",
    }.items():
        if hasattr(Work, name):
            setattr(Work, name, _replacement(name, methodcaller(ours)))
    # The class in C++: what it makes itself is no `torch.futures.Future`.
    base: Any = torch._C.Future
    future_wait, future_done, future_value = base.wait, base.done, base.value

    def wait(self: torch.futures.Future[Any]) -> Any:
        while _unfinished and _allranks.current_rank() is not None and not future_done(self):
            mine = [w for w in _unfinished if w._future is self] or _unfinished
            with contextlib.suppress(RuntimeError):  # It failed: the future says so.
                mine[0]._ticket.wait(None)
            settle_futures()
        return _told_plainly(future_wait, self)

    def value(self: torch.futures.Future[Any]) -> Any:
        return _told_plainly(future_value, self)

    _original["future_wait"], _original["future_value"] = future_wait, future_value
    base.wait, base.value = wait, value


def uninstall() -> None:
    """Puts torch's own methods back."""
    if not _original:
        return
    base: Any = torch._C.Future
    base.wait, base.value = _original.pop("future_wait"), _original.pop("future_value")
    _original.pop("wait")
    for name, method in _original.items():
        setattr(Work, name, method)
    _original.clear()
    _unfinished.clear()
