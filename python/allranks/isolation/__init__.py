"""What is private to a rank although all ranks share one process.

Rank threads run one at a time. Process-wide state that each rank must have for itself (c10d's tables, generators of
random numbers, `os.environ`, `sys.stdout`, loggers, the user's modules) is kept in *slots*: when another rank's turn
comes, Rust takes the old rank's values out of their places and puts the new rank's in (`_allranks.Swapper`). Helper
threads of a rank share its slots; state that is thread-local needs none.

One mechanism, three parts:

`Registry` (`registry.py`)
    adds slots, lazily: a slot appears when something made it necessary, so that a hand-over costs a short, fixed time.
    `on_call(module, name, add)` adds slots at the first call of a setter; `on_import(name, add)` when a module is first
    imported; `entry`, `attribute`, `attributes`, `call` and `memory` add one.
`Patches` (`patches.py`)
    replaces functions of other packages for the time of the run. Every replacement asks `current_rank()` first and does
    what the original does on threads that belong to no rank and in forked children.
parts
    each module here has `install(registry)` and is listed in `PARTS`; it says what is private and why.

**To make a package's state private**, write such a module and list it, or call `add_part` from anywhere:

    def install(registry: Registry) -> None:
        registry.on_import("megatron.core.parallel_state", lambda m: registry.entries(vars(m), m, names_of(m)))

Nothing in the scheduler or the engine knows what a slot holds.

What a slot costs at a hand-over (measured; see `tests/python/test_isolation_cost.py`): an entry or attribute with equal
values 0.05 us, with different ones 0.1 us; a call what its functions cost; Python's generator 0.15 us, torch's 1.2 us.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module

from allranks.isolation.registry import Registry

__all__ = ["PARTS", "Registry", "add_part", "install"]

#: In order: later parts may rely on earlier ones.
PARTS = [
    "interpreter",
    "environment",
    "modules",
    "monkeypatch",
    "threads",
    "thread_locals",
    "blocking",
    "children",
    "exits",
    "signals",
    "logs",
    "registrations",
    "rng",
    "torch_c10d",
    "torch_caches",
    "torch_flags",
    "torch_library",
    "torch_profiler",
]

_more: list[Callable[[Registry], None]] = []


def add_part(install_part: Callable[[Registry], None]) -> None:
    """Adds a part to every later run, after those of this package."""
    _more.append(install_part)


def install(registry: Registry) -> None:
    """Makes everything private that is known so far. Call it before the first rank starts, on the main thread."""
    from allranks.isolation import sync

    torch_was_there = "torch" in sys.modules
    sync.install(registry)
    if torch_was_there:
        sync.replace_module_locks(registry)
    import torch.distributed  # noqa: F401  # before any copy for a rank is made: it adds filters, handlers, variables

    for name in PARTS:
        import_module(f"allranks.isolation.{name}").install(registry)
    for install_part in _more:
        install_part(registry)
