"""The `Work` of an operation without peers: finished before anybody asks.

torch wraps a Python `Work` in a C++ holder that forwards `wait` and `get_future` only; the other questions are answered
by replacements on the C++ class, which find the Python object by a `wait` with a time-out that no program uses.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Work

from allranks.one_rank.patches import Patches

_WHO_ARE_YOU = timedelta(days=-9_998)
_FOREVER = timedelta(0)
_found: list[Finished] = []


class Finished(Work):
    """A finished operation on `tensors`."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        super().__init__()
        self.tensors = tensors
        self.source = -1
        self.position = 0

    def wait(self, timeout: timedelta = _FOREVER) -> bool:
        if timeout == _WHO_ARE_YOU:
            _found.append(self)
        return True

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """A completed future of the tensors."""
        devices = {t.device for t in self.tensors if t.device.type not in ("cpu", "meta")}
        future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future(devices=sorted(devices, key=str))
        future.set_result(self.tensors)
        return future


def _python_work(work: Work, wait: Callable[..., bool]) -> Finished | None:
    if isinstance(work, Finished):
        return work
    _found.clear()
    try:
        wait(work, _WHO_ARE_YOU)
    except Exception:  # Another backend's Work refuses the time-out or runs into it.
        return None
    return _found.pop() if _found else None


def install(patches: Patches) -> None:
    """Makes torch's holder answer."""
    answers: dict[str, Callable[[Finished], Any]] = {
        "is_completed": lambda work: True,
        "is_success": lambda work: True,
        "result": lambda work: work.tensors,
        "synchronize": lambda work: None,
        "exception": lambda work: None,
        "source_rank": lambda work: work.source,
        "_source_rank": lambda work: work.source,
        "_get_sequence_number": lambda work: work.position,
    }
    wait = Work.wait

    def replacement(answer: Callable[[Finished], Any], original: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: Work, *args: Any, **kwargs: Any) -> Any:
            found = _python_work(self, wait)
            return original(self, *args, **kwargs) if found is None else answer(found)

        return method

    for name, answer in answers.items():
        patches.wrap(Work, name, functools.partial(replacement, answer))
