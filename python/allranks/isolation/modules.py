"""The user's modules: every rank has its own copy; installed packages are imported once for all.

A module is the user's if its file lies neither in the standard library nor in `site-packages` (so the script's folder
and editable installs are the user's), unless its package is already shared. An import hook notices each such module
when it is first imported and makes its entry in `sys.modules` a slot; nobody ever looks through `sys.modules`.

Import locks: two ranks must not wait for each other's copy of a module (one may stand in a collective at module level),
but must wait for a shared package that another rank is in the middle of importing. So the lock of a user's module is
the rank's own, and all import locks hand the baton over.
"""

from __future__ import annotations

import _frozen_importlib as bootstrap  # type: ignore[import-not-found]
import contextlib
import importlib.machinery
import os
import site
import sys
import sysconfig
import types
from collections.abc import Iterator
from typing import Any

from allranks._allranks import Lock, RLock, current_rank
from allranks.isolation import monkeypatch, torch_names
from allranks.isolation.registry import Registry


def _roots() -> tuple[str, ...]:
    """Folders whose files are shared by all ranks."""
    paths = sysconfig.get_paths()
    folders = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders.update(site.getsitepackages() if hasattr(site, "getsitepackages") else ())
    folders.add(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    folders |= {os.path.realpath(folder) for folder in folders}
    return tuple(sorted(os.path.join(folder, "") for folder in folders))


_SHARED_ROOTS = _roots()
_SHARED_PARTS = tuple(f"{os.sep}{part}{os.sep}" for part in ("site-packages", "dist-packages"))


def is_users_file(path: str) -> bool:
    """Whether each rank gets its own copy of the module in this file."""
    path = os.path.abspath(path)
    return not path.startswith(_SHARED_ROOTS) and not any(part in path for part in _SHARED_PARTS)


#: Modules of installed packages that each rank has its own copy of all the same: torch's test suites, for one.
also_private: set[str] = set()


class UserLoader(importlib.machinery.SourceFileLoader):
    """Loads a module of the user: compiled once, executed by every rank, each in its own namespace."""

    def get_code(self, fullname: str) -> types.CodeType:
        """The compiled module, with assignments to shared objects made noticeable."""
        return monkeypatch.compiled(self.get_filename(fullname), self.get_data)


class _Around:
    """Loads a shared module, tells the registry, and keeps the importing rank's groups out of its defaults."""

    def __init__(self, registry: Registry, loader: Any) -> None:
        self._registry, self._loader = registry, loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None
        spec.loader = module.__loader__ = self._loader
        with _without_groups() if spec.name.startswith("torch.distributed.") else contextlib.nullcontext():
            self._loader.exec_module(module)
        self._registry.imported(spec.name)
        if current_rank() is not None:
            for act in self._registry.at_import:
                act(module)


@contextlib.contextmanager
def _without_groups() -> Iterator[None]:
    """`torch.distributed.nn.functional` and others bind `group.WORLD` as a default when they are imported."""
    c10d = sys.modules.get(torch_names.C10D)
    world = getattr(c10d, torch_names.WORLD, None)
    if current_rank() is None or world is None or world.default_pg is None:
        yield
        return
    setattr(c10d, torch_names.WORLD, type(world)())
    try:
        yield
    finally:
        setattr(c10d, torch_names.WORLD, world)


class Finder:
    """First in `sys.meta_path`: lets the others find a module, then decides whose it is."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.users: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """What the other finders find, with another loader where it matters."""
        in_rank = current_rank() is not None
        if not in_rank and not self._registry.awaits_import(name):
            return None
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find and find(name, path, target)
            if spec:
                break
        else:
            return None
        if in_rank and self._is_users(spec):
            self.take(name)
            if type(spec.loader) is importlib.machinery.SourceFileLoader:
                spec.loader = UserLoader(spec.loader.name, spec.loader.path)
        elif self._registry.awaits_import(name) or isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            if hasattr(spec.loader, "exec_module"):
                spec.loader = _Around(self._registry, spec.loader)
        return spec

    def take(self, name: str) -> None:
        """Makes the module a rank's own."""
        self.users.add(name)
        self._registry.entry(sys.modules, name)
        package, _, leaf = name.rpartition(".")
        if name in also_private and package in sys.modules:  # The import puts it there: the package is shared.
            self._registry.attribute(sys.modules[package], leaf)

    def _is_users(self, spec: Any) -> bool:
        if spec.name in also_private:
            return True
        parent = spec.name.rpartition(".")[0]
        if parent and parent in sys.modules and parent not in self.users:
            return False
        if isinstance(spec.loader, importlib.machinery.ExtensionFileLoader):
            return False
        if spec.origin and spec.has_location:
            return is_users_file(spec.origin)
        places = list(spec.submodule_search_locations or ())
        return bool(places) and all(is_users_file(os.path.join(place, "x")) for place in places)


def install(registry: Registry) -> None:
    """Puts the import hook and the import locks in place."""
    finder = Finder(registry)
    sys.meta_path.insert(0, finder)
    registry.at_close.append(lambda: sys.meta_path.remove(finder))
    registry.entry(sys.modules, "__main__")
    registry.patches.set(sys.modules[__name__], "_finder", finder)

    real_lock = bootstrap._get_module_lock  # type: ignore[attr-defined]
    own: dict[tuple[int, str], Any] = {}

    def get_module_lock(name: str) -> Any:
        rank = current_rank()
        if rank is None or name not in finder.users:
            return real_lock(name)
        lock = own.get((rank, name))
        if lock is None:
            lock = own[rank, name] = bootstrap._ModuleLock(name)  # type: ignore[attr-defined]
        return lock

    registry.patches.set(bootstrap, "_get_module_lock", get_module_lock)
    thread = types.SimpleNamespace(**vars(bootstrap._thread))  # type: ignore[attr-defined]
    thread.allocate_lock, thread.RLock = Lock, RLock
    registry.patches.set(bootstrap, "_thread", thread)


_finder: Finder | None = None


def is_users_module(name: str) -> bool:
    """Whether each rank has its own `sys.modules[name]`."""
    return name in ("__main__", "__mp_main__") or (_finder is not None and name in _finder.users)


def take_module(name: str) -> None:
    """A rank is about to assign `sys.modules[name]`."""
    if _finder is not None and current_rank() is not None and name not in _finder.users and name not in sys.modules:
        _finder.take(name)
