"""Tools of tests that change something for a while: what they change is the rank's own.

Attributes of classes and modules are seen to by `isolation.monkeypatch`; here are those of other objects, items of
dictionaries, and the patches themselves: one that decorates a test is one object for all ranks, and remembers what it
replaced.
"""

from __future__ import annotations

import builtins
import functools
import pkgutil
import types
from typing import Any

from allranks._allranks import current_rank
from allranks.isolation.registry import Registry


def install(registry: Registry) -> None:
    """Watches pytest's `MonkeyPatch` and `unittest.mock.patch`."""

    def private(mapping: Any, key: Any) -> None:
        if type(mapping) is dict and current_rank() is not None:
            registry.entry(mapping, key)

    def own(patch: Any) -> None:
        if current_rank() is not None:
            registry.attributes(patch)

    def entering(original: Any) -> Any:
        @functools.wraps(original)
        def enter(self: Any) -> Any:
            own(self)
            return original(self)

        return enter

    def item(original: Any) -> Any:
        @functools.wraps(original)
        def method(self: Any, dic: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
            private(dic, name)
            return original(self, dic, name, *args, **kwargs)

        return method

    def whole(original: Any) -> Any:
        @functools.wraps(original)
        def patch(self: Any) -> Any:
            target = pkgutil.resolve_name(self.in_dict) if isinstance(self.in_dict, str) else self.in_dict
            for key in [*self.values, *(target if self.clear and type(target) is dict else ())]:
                private(target, key)
            own(self)
            return original(self)

        return patch

    def of_instance(change: Any) -> Any:
        @functools.wraps(change)
        def changing(owner: Any, name: str, *value: Any) -> None:
            if not isinstance(owner, type | types.ModuleType):
                private(getattr(owner, "__dict__", None), name)
            change(owner, name, *value)

        return changing

    def hook_setters(module: Any) -> None:
        for name in ("setattr", "delattr"):
            registry.patches.set(module, name, of_instance(vars(module).get(name, getattr(builtins, name))))

    def hook_monkeypatch(module: Any) -> None:
        hook_setters(module)
        for name in ("setitem", "delitem"):
            registry.patches.wrap(module.MonkeyPatch, name, item)

    registry.on_import("_pytest.monkeypatch", hook_monkeypatch)

    def hook_mock(module: Any) -> None:
        hook_setters(module)
        registry.patches.wrap(module._patch_dict, "_patch_dict", whole)
        registry.patches.wrap(module._patch, "__enter__", entering)
        registry.attribute(module._patch, "_active_patches", list)

    registry.on_import("unittest.mock", hook_mock)
