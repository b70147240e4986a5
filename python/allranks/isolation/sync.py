"""Locks hand the baton over while they wait; everything of `threading` and `queue` that waits is made of them.

Installed before torch is imported where possible, so that the locks of its modules are made this way as well; a lock
from before is replaced where a module holds it under a global name. A real lock that a rank holds while it hands over
would stop the whole process.
"""

from __future__ import annotations

import _thread
import queue
import sys
import threading
import types

from allranks._allranks import Lock, RLock
from allranks.isolation.registry import Registry

_REAL_LOCK = _thread.LockType
_REAL_RLOCK = type(threading._CRLock()) if threading._CRLock else None  # type: ignore[attr-defined]
#: Held for a few instructions only, also by threads that are about to end and belong to no rank any more.
_LEFT_ALONE = ("threading", "_thread", "weakref", "_weakrefset")


def install(registry: Registry) -> None:
    """Replaces the makers of locks; once more than once does nothing."""
    if threading.Lock is Lock:  # type: ignore[comparison-overlap]
        return
    patches = registry.patches
    patches.set(threading, "Lock", Lock)
    patches.set(threading, "RLock", RLock)
    patches.set(threading, "_allocate_lock", Lock)
    patches.set(_thread, "allocate_lock", Lock)
    patches.set(_thread, "RLock", RLock)
    # The one in C waits on a lock of its own.
    patches.set(queue, "SimpleQueue", queue._PySimpleQueue)  # type: ignore[attr-defined]


def replace_module_locks(registry: Registry) -> None:
    """Locks that modules made before `install`."""
    for module, attribute in _remembered if _remembered is not None else _find_module_locks():
        value = vars(module).get(attribute)
        if type(value) is _REAL_LOCK and not value.locked():
            registry.patches.set(module, attribute, Lock())
        elif type(value) is _REAL_RLOCK and "count=0" in repr(value):
            registry.patches.set(module, attribute, RLock())


def _find_module_locks() -> list[tuple[types.ModuleType, str]]:
    return [
        (module, attribute)
        for name, module in list(sys.modules.items())
        if name not in _LEFT_ALONE and type(module) is types.ModuleType
        for attribute, value in list(vars(module).items())
        if type(value) in (_REAL_LOCK, _REAL_RLOCK)
    ]


_remembered: list[tuple[types.ModuleType, str]] | None = None


def remember_module_locks() -> None:
    """For processes that are forked from this one: the search touches, and so copies, most of their memory."""
    global _remembered
    _remembered = _find_module_locks()
