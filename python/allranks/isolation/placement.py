"""On which CPU rank threads run. Everything that depends on the platform is here.

One rank runs at a time, so a second CPU is of no use to rank threads; but waking a thread on another CPU costs 15 us,
on the same one 3.6 us. So all rank threads are put on one CPU, on Linux. Child processes, and ranks that ask for more
than one intra-op thread, get the whole set back. `ALLRANKS_PIN=0` switches it off.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from allranks.runtime import Runtime

# The real ones, whatever a run puts in their place.
_get = getattr(os, "sched_getaffinity", None)
_set = getattr(os, "sched_setaffinity", None)

#: The whole set, while rank threads are on one CPU.
_whole: set[int] | None = None
_chosen = -1


class Placement:
    """Where the threads of a run go."""

    def __init__(self, run: Runtime) -> None:
        global _whole, _chosen
        _whole = None
        asked = os.environ.get("ALLRANKS_PIN", "1") not in ("0", "")
        threads = os.environ.get("OMP_NUM_THREADS", "1") in ("", "1")
        if not (asked and threads and run.world_size > 1 and sys.platform == "linux" and _get):
            return
        cpus = _get(0)
        if len(cpus) > 1:
            _chosen, _whole = _current_cpu(cpus), cpus
            run.registry.at_close.append(_forget)

    def place_this_thread(self) -> None:
        """The calling thread runs on the chosen CPU from now on, and so do threads that it starts."""
        pin()


def _forget() -> None:
    global _whole
    _whole = None


def _current_cpu(cpus: set[int]) -> int:
    """Where this thread runs now: the system put it there because that CPU was free."""
    try:
        with open("/proc/thread-self/stat", "rb") as file:
            cpu = int(file.read().rsplit(b")", 1)[1].split()[36])
    except (OSError, ValueError, IndexError):
        cpu = -1
    return cpu if cpu in cpus else min(cpus)


def pin() -> None:
    """This thread goes to the chosen CPU, if there is one."""
    if _whole is not None and _set is not None:
        try:
            _set(0, {_chosen})
        except OSError:
            _forget()


def unpin() -> bool:
    """This thread may run anywhere again; true if it was pinned."""
    if _whole is None or _set is None:
        return False
    try:
        _set(0, _whole)
    except OSError:
        return False
    return True


def whole_set() -> set[int] | None:
    """The CPUs of the process, or None if no thread is pinned."""
    return _whole
