"""Ranks that have nothing to do until pytest sends the next test of their class.

A rank that waits for a pipe stands outside: whoever waits for that rank may still be served, so nothing is ever a
deadlock and no time is jumped. But pytest sends the next test to all ranks, and only when all have answered. So a rank
without work counts as waiting for the other ranks; the last one waits outside, for all.
"""

from __future__ import annotations

import select

from allranks import runtime
from allranks._allranks import current_task
from allranks.isolation import blocking


class Idle:
    """The ranks of one child that wait for work."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        #: By task: what it waits for.
        self._waiting: dict[int, int] = {}
        #: By task: how many pieces of work it was told of.
        self._told: dict[int, int] = {}

    def wait_for(self, fd: int) -> None:
        """Until `fd` can be read, or is about to be; on the thread of a rank."""
        run, task = runtime.current(), current_task()
        if run is None or task is None:
            return
        me = task[0]
        mine = self._told.get(me, 0)
        # pytest may be faster than the last rank: work that one rank has is on its way to all.
        if blocking.ready(fd) or any(told > mine for told in self._told.values()):
            self._told[me] = mine + 1
            self._tell(run, list(self._waiting))
            return
        self._waiting[me] = fd
        while len(self._waiting) < self._world_size:
            run.baton.block(None)
            if me not in self._waiting:
                return  # Another has seen that there is work.
        blocking.outside(_all_ready, list(self._waiting.values()))
        self._told[me] = mine + 1
        del self._waiting[me]
        self._tell(run, list(self._waiting))

    def _tell(self, run: runtime.Runtime, tasks: list[int]) -> None:
        for task in tasks:
            del self._waiting[task]
            self._told[task] = self._told.get(task, 0) + 1
            run.baton.wake(task)


def _all_ready(fds: list[int]) -> None:
    for fd in fds:
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        poller.poll()
