"""What the user's modules enter into tables of shared packages: each rank executes its own copy of such a module.

Without this, N ranks enter the same name N times ("already registered"), or one rank's entry serves all. An entry that
a rank makes is private to it; one that is made while a shared module is imported is for all ranks, because the import
happens once.

What goes another way is shared: codecs, virtual subclasses (`abc`), functions registered with a shared
`functools.singledispatch` function, items assigned to a shared table directly.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from allranks._allranks import current_rank
from allranks.isolation import torch_names
from allranks.isolation.modules import is_users_file
from allranks.isolation.registry import Registry

_ABSENT = object()
_IMPORT = "<frozen importlib._bootstrap>"


def is_ranks_own() -> bool:
    """Whether what happens now is done by a rank for itself: not by torch, nor by the import of a shared module."""
    if current_rank() is None:
        return False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file == _IMPORT:
            return False
        if not file.startswith("<frozen") and not _is_passed(file):
            if is_users_file(file):
                return True
            if file.startswith(_torch_folder()):
                return False
        frame = frame.f_back
    return False


@functools.cache
def _torch_folder() -> str:
    import torch

    return os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "")


@functools.cache
def _is_passed(file: str) -> bool:
    """Files that register on somebody's behalf."""
    folder = _torch_folder()
    return file.startswith(folder) and file[len(folder) :].replace(os.sep, "/").startswith(torch_names.REGISTRARS)


def entering(registry: Registry, tables: Callable[[], list[Any]], original: Any) -> Any:
    """`original`, which enters something into some of `tables`: dicts and sets that are changed in place.

    A rank sees and changes its own entries: when a key is new to a table, the key becomes a slot of it.
    """

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not is_ranks_own():
            return original(*args, **kwargs)
        dicts = tables()
        before = [dict(table) for table in dicts]
        result = original(*args, **kwargs)
        for table, old in zip(dicts, before, strict=True):
            for key in [key for key, value in table.items() if old.get(key, _ABSENT) is not value]:
                _make_private(registry, table, key, old.get(key, _ABSENT))
        return result

    return wrapper


def _make_private(registry: Registry, table: dict[Any, Any], key: Any, old: Any) -> None:
    """The other ranks keep what was there before."""
    if registry.has("entry", table, key):
        return
    new = table.pop(key)
    if old is not _ABSENT:
        table[key] = old
    registry.entry(table, key)
    table[key] = new


def install(registry: Registry) -> None:
    """Watches the functions that enter something."""

    def watch(functions: tuple[str, ...], names: tuple[str, ...], rebound: bool, module: ModuleType) -> None:
        space = vars(module)
        names = tuple(name for name in names if name in space)

        def tables() -> list[Any]:
            return [space[name] for name in names if isinstance(space[name], dict)]

        def whole(original: Any) -> Any:
            @functools.wraps(original)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                if is_ranks_own():
                    for name in names:
                        registry.entry(space, name, lambda value: value.copy())
                    return original(*args, **kwargs)
                return _for_all(registry, space, names, functools.partial(original, *args, **kwargs))

            return wrapper

        make = whole if rebound else functools.partial(entering, registry, tables)
        package = sys.modules.get(module.__name__.rpartition(".")[0])
        for function in functions:
            original = space.get(function)
            if original is not None:
                holders = [module] if package is None else [module, package]
                registry.patches.everywhere(original, make(original), holders)

    def decompositions(module: ModuleType) -> None:
        """Whichever table it is: torch's own, inductor's, one of the user's."""

        def make(original: Any) -> Any:
            @functools.wraps(original)
            def wrapper(table: Any, op: Any, function: Any) -> Any:
                return entering(registry, lambda: [table], original)(table, op, function)

            return wrapper

        registry.patches.wrap(module, torch_names.DECOMPOSITIONS[1], make)

    registry.on_import(torch_names.DECOMPOSITIONS[0], decompositions)
    for module_name, functions, names, rebound in torch_names.REGISTRATIONS:
        registry.on_import(module_name, functools.partial(watch, functions, names, rebound))


def _for_all(registry: Registry, space: dict[str, Any], names: tuple[str, ...], act: Callable[[], Any]) -> Any:
    """Does something to tables of which ranks may have copies by now, to each copy."""
    slots = {name: registry.entry(space, name) for name in names if registry.has("entry", space, name)}
    running = current_rank()
    result = act()
    if running is None:
        return result
    mine = {name: space[name] for name in slots}
    for rank in range(registry.world_size):
        if rank != running:
            space.update({name: registry.swapper.value(slot, rank) for name, slot in slots.items()})
            act()
            for name, slot in slots.items():
                registry.swapper.set_value(slot, rank, space[name])
    space.update(mine)
    return result
