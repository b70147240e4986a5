"""Caches and other module-level state of torch that depend on the rank.

In real runs each process has its own. A cached answer of rank 0 given to rank 3 is wrong where the function looks at
the rank's coordinate in a mesh: two ranks' meshes compare equal.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from allranks._allranks import current_rank
from allranks.isolation import torch_names
from allranks.isolation.registry import Registry


class RankCache:
    """A function's `functools.lru_cache`, one a rank; threads of no rank share one."""

    def __init__(self, cached: Any) -> None:
        self._function: Callable[..., Any] = cached.__wrapped__
        self._parameters = cached.cache_parameters()
        self._caches: dict[int | None, Any] = {}
        functools.update_wrapper(self, cached.__wrapped__)

    def _own(self) -> Any:
        rank = current_rank()
        cache = self._caches.get(rank)
        if cache is None:
            cache = self._caches[rank] = functools.lru_cache(**self._parameters)(self._function)
        return cache

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._own()(*args, **kwargs)

    def cache_info(self) -> Any:
        """Of this rank's cache."""
        return self._own().cache_info()

    def cache_clear(self) -> None:
        """This rank's cache."""
        self._own().cache_clear()

    def cache_parameters(self) -> dict[str, Any]:
        """As `functools` has it."""
        return dict(self._parameters)


def install(registry: Registry) -> None:
    """Gives each rank its own."""

    def caches(names: tuple[str, ...], module: ModuleType) -> None:
        for name in names:
            if hasattr(getattr(module, name, None), "cache_parameters"):
                registry.patches.wrap(module, name, RankCache)

    def state(names: tuple[str, ...], module: ModuleType) -> None:
        for name in names:
            if name in vars(module):
                registry.entry(vars(module), name, _own)

    def attributes(path: str, names: tuple[str, ...], module: ModuleType) -> None:
        owner = operator.attrgetter(path)(module)
        for name in names:
            if hasattr(owner, name):
                registry.attribute(owner, name, _own)

    for module_name, names in torch_names.RANK_CACHES.items():
        registry.on_import(module_name, functools.partial(caches, names))
    for module_name, values in torch_names.RANK_STATE.items():
        registry.on_import(module_name, functools.partial(state, values))
    for module_name, path, attribute_names in torch_names.RANK_ATTRIBUTES:
        registry.on_import(module_name, functools.partial(attributes, path, attribute_names))
    hooks = import_module(torch_names.MODULE_HOOKS)

    def add_hooks() -> None:
        state(tuple(name for name in vars(hooks) if name.startswith("_global_")), hooks)

    for setter in torch_names.MODULE_HOOK_SETTERS:
        registry.on_call(hooks, setter, add_hooks)


def _own(value: Any) -> Any:
    """A rank's own start: tables are copied, everything else is the same object."""
    return value.copy() if isinstance(value, dict | set | list) else value
