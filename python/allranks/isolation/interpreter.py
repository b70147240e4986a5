"""What belongs to the interpreter: `sys`, `warnings`, `gc`."""

from __future__ import annotations

import functools
import gc
import sys
import threading
import warnings

from allranks import debugger
from allranks.isolation.registry import Registry

#: Assigned by programs without any call that could be noticed, so always private.
_SYS = ("stdout", "stderr", "stdin", "excepthook", "displayhook", "unraisablehook", "breakpointhook")
_WARNINGS = ("showwarning", "_showwarnmsg_impl", "formatwarning", "defaultaction")


def install(registry: Registry) -> None:
    """Private: the streams, hooks, path and arguments of `sys`; filters and hooks of `warnings`; whether `gc` runs."""
    sys_dict = vars(sys)
    registry.entries(sys_dict, _SYS)
    registry.entries(sys_dict, ("argv", "path"), fresh=list)
    registry.entry(vars(threading), "excepthook")
    registry.entry(vars(warnings), "filters", fresh=list)
    registry.entries(vars(warnings), _WARNINGS)
    registry.entry(vars(warnings), "onceregistry", fresh=dict)

    def gc_slot() -> None:
        registry.call(gc.isenabled, lambda on: (enable if on else disable)(), key="gc.isenabled")

    enable, disable = gc.enable, gc.disable
    registry.on_call(gc, "enable", gc_slot)
    registry.on_call(gc, "disable", gc_slot)
    for setter in ("setrecursionlimit", "setswitchinterval"):
        read, write = getattr(sys, setter.replace("set", "get")), getattr(sys, setter)
        registry.on_call(sys, setter, functools.partial(registry.call, read, write, key=setter))
    registry.on_import("pdb", lambda pdb: debugger.install(registry, pdb))
    # `tempfile.tempdir` is computed from the environment at first use and then kept.
    registry.on_import("tempfile", lambda module: registry.entry(vars(module), "tempdir"))
