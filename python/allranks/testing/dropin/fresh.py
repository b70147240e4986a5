"""Makes a process that was forked from pytest look as one that was spawned: before any test module was imported.

Installed packages stay imported; that is what makes the fork worth it. The user's modules go, so that each rank imports
its own copy, and so does what pytest put into the interpreter: import hooks, log handlers, filters of warnings.
"""

from __future__ import annotations

import faulthandler
import importlib.machinery
import io
import logging
import os
import pdb
import signal
import sys
import threading
import types
import warnings
from dataclasses import dataclass, field
from typing import Any

from allranks.isolation import modules
from allranks.testing.dropin import names


@dataclass
class Baseline:
    """What the interpreter was like before pytest changed it."""

    filters: list[Any] = field(default_factory=lambda: list(warnings.filters))
    show: Any = field(default_factory=lambda: (warnings.showwarning, warnings._showwarnmsg_impl))  # type: ignore[attr-defined]
    set_trace: Any = field(default_factory=lambda: pdb.set_trace)
    #: Filters while modules are collected: pytest's own first.
    collecting: list[Any] = field(default_factory=list)

    def at_collection(self) -> None:
        """Just before the first module is collected."""
        self.collecting = list(warnings.filters)

    def restore_warnings(self) -> None:
        """pytest's filters go, those that imports added stay."""
        added = [one for one in warnings.filters if one not in self.collecting]
        warnings.resetwarnings()
        warnings.filters[:] = [*added, *(one for one in self.filters if one not in added)]  # type: ignore[index]
        warnings.showwarning, warnings._showwarnmsg_impl = self.show  # type: ignore[attr-defined]


def forget_pytest(baseline: Baseline) -> None:
    """Undoes what pytest did to the interpreter."""
    baseline.restore_warnings()
    pdb.set_trace = baseline.set_trace
    sys.meta_path[:] = [finder for finder in sys.meta_path if not _is_pytests(finder)]
    root = logging.getLogger()
    root.handlers[:] = [handler for handler in root.handlers if not _is_pytests(handler)]
    if not root.handlers and names.MODULE in sys.modules:
        logging.basicConfig(level=logging.INFO)  # As that module does when it is imported, unless a handler is there.
    sys.excepthook, sys.unraisablehook = sys.__excepthook__, sys.__unraisablehook__
    sys.breakpointhook, threading.excepthook = sys.__breakpointhook__, threading.__excepthook__
    forget_signals()


def forget_signals() -> None:
    """Handlers of pytest and its plugins; Ctrl-C is pytest's business."""
    faulthandler.disable()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, lambda *_: None)  # Not SIG_IGN: programs that are started would inherit that.


def _is_pytests(thing: Any) -> bool:
    return type(thing).__module__.split(".")[0] in ("_pytest", "pytest")


def forget_modules() -> dict[str, str]:
    """Takes the user's modules out of `sys.modules`; returns the files of those that were read from one."""
    files = {}
    gone: set[str] = set()
    for name in sorted(sys.modules):
        module = sys.modules[name]
        if module is None or name in ("__main__", "__mp_main__"):
            continue
        package, _, leaf = name.rpartition(".")
        suite = _is_suite(name, module)
        if suite:
            modules.also_private.add(name)
        elif not _is_users(module) or (package in sys.modules and package not in gone):
            continue
        gone.add(name)
        if getattr(module, "__file__", None):
            files[name] = str(module.__file__)
    for name in gone:
        package, _, leaf = name.rpartition(".")
        if package in sys.modules and package not in gone:
            vars(sys.modules[package]).pop(leaf, None)
    for name in gone:
        del sys.modules[name]
    importlib.invalidate_caches()
    return files


def _is_suite(name: str, module: types.ModuleType) -> bool:
    if not name.startswith(names.SUITES) or name.startswith(names.FOREIGN):
        return False
    return any(names.is_base(value) and value.__module__ == name for value in list(vars(module).values()))


def _is_users(module: types.ModuleType) -> bool:
    loader = getattr(getattr(module, "__spec__", None), "loader", None)
    if isinstance(loader, importlib.machinery.ExtensionFileLoader) or module.__name__.split(".")[0] in _SHARED:
        return False
    file = getattr(module, "__file__", None)
    if file:
        return modules.is_users_file(file)
    try:
        places = list(getattr(module, "__path__", ()))
    except Exception:  # Lazy modules compute it, or refuse to.
        return False
    return bool(places) and all(modules.is_users_file(os.path.join(place, "x")) for place in places)


#: Never imported twice, wherever they lie.
_SHARED = frozenset(("allranks", "torch", "numpy"))


def fresh_streams() -> None:
    """`sys.stdin`, `stdout` and `stderr` as Python makes them from descriptors 0, 1 and 2."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    for fd, name, errors in ((1, "stdout", "strict"), (2, "stderr", "backslashreplace")):
        binary: Any = open(fd, "wb", closefd=False)  # noqa: SIM115
        lines = fd == 2 or os.isatty(fd)
        stream = io.TextIOWrapper(binary, encoding="utf-8", errors=errors, line_buffering=lines)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler):
            handler.setStream(sys.stderr)
