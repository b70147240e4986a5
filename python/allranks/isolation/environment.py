"""`os.environ`, the working directory, and the process id of a rank."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from allranks._allranks import current_rank
from allranks.isolation import placement
from allranks.isolation.registry import Registry


def install(registry: Registry) -> None:
    """Private: the mapping behind `os.environ` (C's `getenv` sees the last value), the working directory, the pid."""
    registry.attribute(os.environ, "_data", fresh=dict)
    if hasattr(os, "environb"):
        registry.attribute(os.environb, "_data")
        _share(registry)
    _c_environment(registry)
    _working_directory(registry)
    _process_ids(registry)


def _c_environment(registry: Registry) -> None:
    """What ranks set or unset reaches C, whose environment is one for all: after the run it is as it was before."""
    before: dict[Any, Any] = dict(os.environ._data)  # type: ignore[attr-defined]
    changed: dict[bytes, Any] = {}

    def noting(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def change(name: Any, *value: Any) -> None:
            if current_rank() is not None:
                changed[os.fsencode(name)] = name
            original(name, *value)

        return change

    put, unset = os.putenv, os.unsetenv

    def restore() -> None:
        for key, name in changed.items():
            value = before.get(key, before.get(os.fsdecode(key)))
            if value is None:
                unset(name)
            else:
                put(name, value)

    for name in ("putenv", "unsetenv"):
        registry.patches.wrap(os, name, noting)
    registry.at_close.append(restore)


def _share(registry: Registry) -> None:
    """`os.environb` is a second view of the same mapping."""
    text = registry.attribute(os.environ, "_data")
    raw = registry.attribute(os.environb, "_data")
    for rank in range(registry.world_size):
        registry.swapper.set_value(raw, rank, registry.swapper.value(text, rank))


def environment_of(registry: Registry, rank: int) -> dict[Any, Any]:
    """The mapping that `rank` will find in `os.environ`; not for the rank that runs now."""
    mapping = registry.swapper.value(registry.attribute(os.environ, "_data"), rank)
    assert isinstance(mapping, dict)
    return mapping


def _working_directory(registry: Registry) -> None:
    real_chdir = os.chdir
    now = [os.getcwd()]

    def move(path: str) -> None:
        if path != now[0]:
            try:
                real_chdir(path)
                now[0] = path
            except OSError:
                pass  # The folder is gone: the rank finds out when it uses it.

    def make(original: Any) -> Any:
        @functools.wraps(original)
        def chdir(path: Any) -> None:
            if current_rank() is not None:
                registry.call(lambda: now[0], move, key="cwd")
            original(path)
            now[0] = os.getcwd()

        return chdir

    for name in ("chdir", "fchdir"):
        registry.patches.wrap(os, name, make)
    registry.at_close.append(lambda: real_chdir(_existing(before)))
    before = now[0]


def _existing(path: str) -> str:
    return path if os.path.isdir(path) else "/"


def _process_ids(registry: Registry) -> None:
    """A pid of its own for each rank, above what the system hands out; functions that take one translate it back."""
    base = _first_free_pid()
    real = os.getpid
    patches = registry.patches

    def getpid() -> int:
        rank = current_rank()
        return real() if rank is None else base + rank

    patches.set(os, "getpid", functools.wraps(real)(getpid))

    def translating(original: Callable[..., Any]) -> Callable[..., Any]:
        is_affinity = original.__name__.startswith("sched_")

        @functools.wraps(original)
        def wrapper(pid: int, *args: Any) -> Any:
            if current_rank() is not None and base <= pid < base + registry.world_size:
                pid = 0 if is_affinity else real()
            if is_affinity and not args and pid == 0 and current_rank() is not None and placement.whole_set():
                return set(placement.whole_set() or ())  # The program need not know that its threads were put together.
            return original(pid, *args)

        return wrapper

    for name in ("getpgid", "getsid", "sched_getaffinity", "sched_setaffinity", "pidfd_open", "setpgid"):
        patches.wrap(os, name, translating)


def _first_free_pid() -> int:
    """Linux never has a pid above 2^22; elsewhere they are smaller."""
    return 1 << 22


def rank_of_pid(pid: int, world_size: int) -> int | None:
    """The rank that `os.getpid()` answers `pid` to."""
    rank = pid - _first_free_pid()
    return rank if 0 <= rank < world_size else None
