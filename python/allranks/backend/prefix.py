"""What torch's `PrefixStore` does not pass on to a store written in Python.

It finds `get`, `set`, `wait` and most others; but not queues, `list_keys` and `set_timeout`, and it turns the default
time-out of `barrier` into one that looks as if the script had chosen it. Its prefix cannot be read, so it is found out:
the store below is asked for a key that it knows as a probe. Stores that are not ours are left to torch.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

from torch._C import _distributed_c10d as c10d

from allranks.backend.store import PROBE, Data, RunStore, Timeout, probed

_QUEUES = ("queue_push", "queue_pop", "queue_len")
_saved: dict[str, Any] = {}


def _below(store: Any) -> RunStore | None:
    """The store below all prefixes, if it is ours."""
    base = store._underlying_non_prefix_store if type(store) is c10d.PrefixStore else store  # type: ignore[attr-defined]
    return base if issubclass(type(base), RunStore) else None


def _full_key(prefix: Any, key: Data) -> str:
    """The key as the store below all prefixes sees it."""
    probed.clear()
    prefix.delete_key(PROBE + (key if isinstance(key, str) else key.decode(errors="replace")))
    return probed.pop().replace(PROBE, "")


def _forward(name: str, original: Any) -> Callable[..., Any]:
    """A method whose first argument is a key."""

    def method(self: Any, key: Data, *args: Any, **kwargs: Any) -> Any:
        base = _below(self)
        if base is None:
            return original(self, key, *args, **kwargs)
        return getattr(base, name)(_full_key(self, key), *args, **kwargs)

    return method


def _barrier(original: Any) -> Callable[..., Any]:
    def barrier(self: Any, key: Data, world_size: int, timeout: Timeout | None = None) -> None:
        base = _below(self)
        if base is None:
            original(self, key, world_size, timeout)
        else:
            base.core_of().barrier(_full_key(self, key), world_size, timeout, by_keys=True)

    return barrier


def _list_keys(original: Any) -> Callable[..., Any]:
    def list_keys(self: Any) -> list[str]:
        base = _below(self)
        if base is None:
            return original(self)
        prefix = _full_key(self, "")
        return [key.removeprefix(prefix) for key in base.list_keys() if key.startswith(prefix)]

    return list_keys


def _set_timeout(original: Any) -> Callable[..., Any]:
    def set_timeout(self: Any, timeout: Timeout) -> None:
        base = _below(self)
        if base is None:
            original(self, timeout)
        else:
            base.choose_timeout(timeout, sys._getframe(1))

    return set_timeout


def _init(original: Any) -> Callable[..., Any]:
    def init(self: Any, prefix: str, store: Any) -> None:
        original(self, prefix, store)
        base = _below(store)
        if base is not None:
            # C++ keeps the store, but not its Python half: that lives as long as the prefix.
            weakref.finalize(self, _let_go, base).atexit = False

    return init


def _let_go(store: RunStore) -> None:
    """Called when a prefix of `store` is gone."""


def install() -> None:
    """Idempotent."""
    if _saved:
        return
    prefix: Any = c10d.PrefixStore
    makers: dict[str, Callable[[Any], Any]] = {
        "__init__": _init,
        "barrier": _barrier,
        "list_keys": _list_keys,
        "set_timeout": _set_timeout,
    }
    makers.update({name: functools.partial(_forward, name) for name in _QUEUES})
    for name, maker in makers.items():
        _saved[name] = vars(prefix).get(name)
        setattr(prefix, name, maker(getattr(prefix, name)))


def uninstall() -> None:
    """Puts torch's own methods back."""
    for name, value in _saved.items():
        if value is None:
            delattr(c10d.PrefixStore, name)
        else:
            setattr(c10d.PrefixStore, name, value)
    _saved.clear()
