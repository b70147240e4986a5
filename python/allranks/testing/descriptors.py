"""`os.dup2` onto stdin, stdout or stderr: the redirection is the rank's own (`capfd`, `contextlib` recipes, tests).

A descriptor that a rank redirects is pointed, at every hand-over, to where the rank that comes next has it; one that no
rank touches costs nothing.
"""

from __future__ import annotations

import functools
import os

from allranks._allranks import current_rank
from allranks.isolation.registry import Registry

_STANDARD = (0, 1, 2)


class _Place:
    """Where a descriptor points: a duplicate of our own, closed with the last rank that needs it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = os.dup(descriptor)

    def __del__(self) -> None:
        os.close(self.descriptor)


def install(registry: Registry) -> None:
    """Watches `os.dup2`."""
    real = os.dup2
    now: dict[int, _Place] = {}

    def point(target: int, place: _Place) -> None:
        if now[target] is not place:
            real(place.descriptor, target)
            now[target] = place

    def watch(target: int) -> None:
        if target not in now:
            now[target] = before = _Place(target)
            read, write = functools.partial(now.__getitem__, target), functools.partial(point, target)
            registry.call(read, write, key=("descriptor", target))
            registry.at_close.append(functools.partial(point, target, before))

    @functools.wraps(real)
    def dup2(fd: int, fd2: int, inheritable: bool = True) -> int:
        if current_rank() is None or fd2 not in _STANDARD or fd == fd2:
            return real(fd, fd2, inheritable)
        watch(fd2)
        point(fd2, _Place(fd))
        return fd2

    registry.patches.set(os, "dup2", dup2)
