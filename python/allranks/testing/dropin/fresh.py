"""Makes a process look as one that was spawned, with the installed packages that pytest has imported already there.

That is what makes a fork of it worth it. The user's modules are not: each rank imports its own copy.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import importlib.machinery
import io
import logging
import os
import signal
import sys
import types
from typing import Any

from allranks.isolation import modules
from allranks.testing.dropin import names


def forget_signals() -> None:
    """Handlers of pytest and its plugins; Ctrl-C is pytest's business."""
    faulthandler.disable()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, lambda *_: None)  # Not SIG_IGN: programs that are started would inherit that.


def imported() -> tuple[list[str], list[str]]:
    """The modules that this process has imported, in order: those that all ranks share, and torch's suites."""
    shared: list[str] = []
    suites: list[str] = []
    users: set[str] = set()
    for name, module in list(sys.modules.items()):
        package = name.rpartition(".")[0]
        if module is None or name in ("__main__", "__mp_main__"):
            continue
        if _is_suite(name, module):
            suites.append(name)
        elif package in users or (package not in sys.modules and _is_users(module)):
            users.add(name)
        elif name.split(".")[0] not in _PYTESTS:
            shared.append(name)
    return shared, suites


def import_again(shared: list[str], suites: list[str]) -> None:
    """Imports what another process has. Some names are no modules that can be imported by themselves; they are left."""
    modules.also_private.update(suites)
    for name in shared:
        if name not in sys.modules:
            with contextlib.suppress(Exception, SystemExit):
                importlib.import_module(name)


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
#: What only the process that runs the tests has.
_PYTESTS = frozenset(("pytest", "_pytest", "pluggy", "xdist", "execnet"))


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
