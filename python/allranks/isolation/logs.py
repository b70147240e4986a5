"""Loggers: each rank has its own level, handlers and filters, on the root logger and on each logger that it touches."""

from __future__ import annotations

import functools
import logging
from typing import Any

from allranks._allranks import RLock, current_rank
from allranks.isolation.registry import Registry


def logger_copy(attributes: dict[str, Any]) -> dict[str, Any]:
    """A logger's attributes for one rank: what is changed in place is copied."""
    copy = dict(attributes)
    for name in ("handlers", "filters"):
        copy[name] = list(copy[name])
    copy["_cache"] = {}
    return copy


def install(registry: Registry) -> None:
    """Private: the root logger, named loggers once a rank sets something on them, and the list of open handlers."""
    patches = registry.patches
    registry.attributes(logging.root, logger_copy)
    registry.entry(vars(logging), "_handlerList", fresh=list)
    registry.entry(vars(logging), "_handlers", fresh=lambda handlers: handlers.copy())
    for setter, name in (
        ("setLogRecordFactory", "_logRecordFactory"),
        ("setLoggerClass", "_loggerClass"),
        ("captureWarnings", "_warnings_showwarning"),
    ):
        registry.on_call(logging, setter, functools.partial(registry.entry, vars(logging), name))
    registry.on_call(logging, "disable", lambda: registry.attribute(logging.root.manager, "_disable"))
    _loggers(registry)
    # A lock from before the run would hold the whole process up.
    patches.set(logging, "_lock", RLock())

    def make_shutdown(original: Any) -> Any:
        @functools.wraps(original)
        def shutdown(handlerList: Any = None) -> None:
            original(logging._handlerList if handlerList is None else handlerList)  # type: ignore[attr-defined]

        return shutdown

    patches.wrap(logging, "shutdown", make_shutdown)
    registry.at_rank_end.append(lambda _rank: logging.shutdown())


def _loggers(registry: Registry) -> None:
    logger_class = logging.Logger

    def touching(original: Any) -> Any:
        @functools.wraps(original)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            if current_rank() is not None and isinstance(self, logger_class):
                registry.attributes(self, logger_copy)
            return original(self, *args, **kwargs)

        return method

    for name in ("setLevel", "addHandler", "removeHandler"):
        registry.patches.wrap(logger_class, name, touching)
    for name in ("addFilter", "removeFilter"):
        registry.patches.wrap(logging.Filterer, name, touching)

    def is_enabled_for(self: logging.Logger, level: int) -> bool:
        """Without the cache, which holds the answer of whichever rank asked first."""
        if self.disabled or self.manager.disable >= level:
            return False
        return level >= self.getEffectiveLevel()

    registry.patches.set(logger_class, "isEnabledFor", is_enabled_for)
