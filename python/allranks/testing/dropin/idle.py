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

    def wait_for(self, fd: int) -> None:
        """Until `fd` can be read; on the thread of a rank."""
        run, task = runtime.current(), current_task()
        if run is None or task is None or blocking.ready(fd):
            return
        self._waiting[task[0]] = fd
        while len(self._waiting) < self._world_size:
            run.baton.block(None)
            if task[0] not in self._waiting:
                return  # The last one saw that all have work.
        blocking.outside(_all_ready, list(self._waiting.values()))
        others = [other for other in self._waiting if other != task[0]]
        self._waiting.clear()
        for other in others:
            run.baton.wake(other)


def _all_ready(fds: list[int]) -> None:
    for fd in fds:
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        poller.poll()
