"""Operators that ranks define or override with `torch.library`: each rank's calls reach its own implementations.

torch's dispatcher is one for the process, and each rank executes its own copy of the module that defines an operator:
N definitions of one name. So what `torch.library.Library` gets from torch on a rank's thread is a stand-in:

* An operator is defined when the first rank defines it; equal definitions of others are noted. One that differs is
  refused: a name has one schema in a process.
* The first kernel for an operator and dispatch key registers a function that looks up the kernel of the rank that
  calls. A rank without one gets what was there before (aten's own kernel, for an override), or the next dispatch key.
* What the last rank gave up is taken from the dispatcher; the rest is when the run ends.

Fake kernels and the like, which torch keeps beside the dispatcher, are private by operator. What torch or another
shared package registers while it is imported goes to the dispatcher as it always does, for all ranks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from allranks._allranks import current_rank
from allranks.isolation import torch_names
from allranks.isolation.registrations import is_ranks_own
from allranks.isolation.registry import Registry

Kernel = Callable[..., Any]


def install(registry: Registry) -> None:
    """Waits for torch."""
    registry.on_import("torch", lambda torch: _Operators(registry, torch))


@dataclass
class _Definition:
    """An operator, as the ranks that hold it defined it."""

    text: tuple[Any, ...]
    native: Any
    name: str
    ranks: set[int] = field(default_factory=set)


@dataclass
class _Slot:
    """The kernels for one operator and dispatch key, by rank; the newest of a rank last."""

    native: Any
    #: What ranks without a kernel get; None: nothing was registered.
    before: Any
    kernels: dict[int, list[tuple[Kernel, bool]]] = field(default_factory=dict)


class _Operators:
    """Every definition and kernel of the ranks of a run."""

    def __init__(self, registry: Registry, torch: Any) -> None:
        self.registry, self.torch, self.native = registry, torch, torch._C
        self.make = self.native._dispatch_library
        self.has_kernel = self.native._dispatch_has_kernel_for_dispatch_key
        self.kernel = self.native._dispatch_get_computed_kernel_for_dispatch_key
        self.definitions: dict[str, _Definition] = {}
        self.slots: dict[tuple[str, str], _Slot] = {}
        #: torch's own kernels for operators that change or view their arguments, by operator.
        self.fallbacks: dict[str, Any] = {}
        #: Who holds the one DEF library of a namespace, and torch's own object for it.
        self.whole: dict[str, tuple[Any, set[int]]] = {}
        registry.patches.set(self.native, "_dispatch_library", self.library)
        registry.patches.set(self.native, "_dispatch_has_kernel_for_dispatch_key", self.has_own_kernel)
        registry.patches.set(self.native, "_dispatch_get_computed_kernel_for_dispatch_key", self.own_kernel)
        registry.at_close.append(self.close)
        registry.on_import("torch.library", self._own_entries)
        registry.on_import("torch._library.custom_ops", self._own_definitions)

    def library(self, kind: str, ns: str, key: str, file: str = "/dev/null", line: int = 0) -> Any:
        """In place of `_dispatch_library`."""
        rank = current_rank()
        if rank is None or not is_ranks_own():
            return self.make(kind, ns, key, file, line)
        if kind == "DEF":
            whole = self.whole.get(ns)
            if whole is None or rank in whole[1]:
                self.whole[ns] = whole = (self.make(kind, ns, key, file, line), set())  # Or torch's own refusal.
            whole[1].add(rank)
        return _RankLibrary(self, rank, kind, ns, (file, line))

    def has_own_kernel(self, name: str, key: Any) -> bool:
        """In place of `_dispatch_has_kernel_for_dispatch_key`: others' kernels do not count."""
        slot, rank = self.slots.get((name, str(key).rpartition(".")[2])), current_rank()
        if slot is None or rank is None or rank in slot.kernels:
            return bool(self.has_kernel(name, key))
        return slot.before is not None

    def own_kernel(self, name: str, key: Any) -> Any:
        """In place of `_dispatch_get_computed_kernel_for_dispatch_key`: what others override is as it was before."""
        slot, rank = self.slots.get((name, str(key).rpartition(".")[2])), current_rank()
        if slot is None or slot.before is None or rank is None or rank in slot.kernels:
            return self.kernel(name, key)
        return slot.before

    def _own_entries(self, library: Any) -> None:
        module, singleton, table = torch_names.OPERATOR_ENTRIES
        entries: dict[str, Any] = getattr(getattr(import_module(module), singleton), table)

        def make(original: Any) -> Any:
            @functools.wraps(original)
            def method(lib: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
                if isinstance(lib.m, _RankLibrary):
                    name = f"{lib.ns}::{lib._resolve_op_name(op, original.__name__).rpartition('::')[2]}"
                    self.registry.entry(entries, name, _entry_copy if name in entries else None)
                if "_stacklevel" in original.__code__.co_varnames:  # It looks at the frames above.
                    args = (*args[:1], (args[1] if len(args) > 1 else kwargs.pop("_stacklevel", 1)) + 1, *args[2:])
                return original(lib, op, *args, **kwargs)

            return method

        for name in torch_names.ENTRY_CHANGERS:
            self.registry.patches.wrap(library.Library, name, make)

    def _own_definitions(self, module: Any) -> None:
        """A rank that defines an operator anew replaces its own only."""
        libraries, definitions = module.OPDEF_TO_LIB, module.OPDEFS

        def make(original: Any) -> Any:
            @functools.wraps(original)
            def get_library_allowing_overwrite(namespace: str, name: str) -> Any:
                if is_ranks_own():
                    self.registry.entry(libraries, f"{namespace}::{name}")
                    self.registry.entry(definitions.data, f"{namespace}::{name}")
                return original(namespace, name)

            return get_library_allowing_overwrite

        self.registry.patches.wrap(module, "get_library_allowing_overwrite", make)

    def close(self) -> None:
        """After the run. `torch.ops` must not keep operators that are gone: a call of one ends the process."""
        for name in self.definitions:
            space, _, rest = name.partition("::")
            found, packet = vars(self.torch.ops).get(space), rest.partition(".")[0]
            if found is not None and packet in vars(found):
                delattr(found, packet)
                found._dir = [other for other in found._dir if other != packet]
        natives = [slot.native for slot in self.slots.values()]
        natives += [definition.native for definition in self.definitions.values()]
        natives += [*self.fallbacks.values(), *(native for native, _ in self.whole.values())]
        for native in natives:
            native.reset()

    def call(self, name: str, key: str, slot: _Slot, keyset: Any, *args: Any, **kwargs: Any) -> Any:
        """The kernel of the rank that calls."""
        rank = current_rank()
        mine = slot.kernels.get(rank) if rank is not None else None
        if mine:
            kernel, with_keyset = mine[-1]
            if kernel is not self.torch.library.fallthrough_kernel:
                return kernel(keyset, *args, **kwargs) if with_keyset else kernel(*args, **kwargs)
        elif slot.before is not None:
            return slot.before.call_boxed(keyset, *args, **kwargs)
        elif key not in self.native.DispatchKey.__members__ or key.startswith("Composite") or _is_backend(key):
            raise NotImplementedError(f"Could not run '{name}': this rank has no kernel for {key}, only others have")
        after = keyset & self.native._dispatch_keyset_full_after(getattr(self.native.DispatchKey, key))
        return self._overload(name).redispatch(after, *args, **kwargs)

    def _overload(self, name: str) -> Any:
        space, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        return getattr(getattr(getattr(self.torch.ops, space), packet), overload or "default")

    def before(self, name: str, key: str) -> Any:
        """The kernel that torch has for a key of the runtime, to be called by ranks that do not override it."""
        fallback = name in self.fallbacks and key == "ADInplaceOrView"
        if (name in self.definitions and not fallback) or not self.native._dispatch_has_kernel(name):
            return None
        member = self.native.DispatchKey.__members__.get(key)
        if member is None or (key.startswith(("Composite", "Autograd")) and not self.has_kernel(name, key)):
            return None
        if self.native._dispatch_kernel_for_dispatch_key_is_fallthrough(name, member):
            return None
        if not self.native._dispatch_has_computed_kernel_for_dispatch_key(name, key):
            return None
        return self.kernel(name, member)


def _is_backend(key: str) -> bool:
    return key in torch_names.BACKEND_KEYS


class _RankLibrary:
    """One rank's `torch._C._DispatchModule`."""

    def __init__(self, all_: _Operators, rank: int, kind: str, ns: str, place: tuple[str, int]) -> None:
        self._all, self._rank, self._kind, self._ns, self._place = all_, rank, kind, ns, place
        self._defined: list[str] = []
        self._registered: list[tuple[tuple[str, str], tuple[Kernel, bool]]] = []

    def _native(self, kind: str) -> Any:
        return self._all.make(kind, self._ns, "", *self._place)

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(f"allranks does not share torch's _DispatchModule.{name} between ranks")

    def _full(self, name: str) -> str:
        return name if "::" in name else f"{self._ns}::{name}"

    def define(self, schema: str, alias: str = "", tags: tuple[Any, ...] = ()) -> str:
        """Defines an operator, or notes that another rank has."""
        if self._kind == "IMPL":
            return str(self._native("IMPL").define(schema, alias, tags))  # torch's own refusal.
        full = self._full(schema.split("(")[0].strip())
        known = self._all.definitions.get(full)
        if known is None or self._rank in known.ranks:
            native = self._native("FRAGMENT")
            name = native.define(schema, alias, tags)
            known = self._all.definitions[full] = _Definition((schema, alias, tags), native, name)
        elif known.text != (schema, alias, tags):
            raise RuntimeError(
                f"ranks define the operator {full} differently: {known.text[0]!r} and {schema!r}; "
                "allranks runs all ranks in one process, where a name has one schema"
            )
        known.ranks.add(self._rank)
        self._defined.append(full)
        return known.name

    def impl(self, name: str, key: str, kernel: Kernel, with_keyset: bool = False) -> None:
        """Registers this rank's kernel."""
        all_, full = self._all, self._full(name)
        slot = all_.slots.get((full, key))
        if slot is None:
            native, before = self._native("IMPL"), all_.before(full, key)
            slot = _Slot(native, before)
            native.impl(full, key, functools.partial(all_.call, full, key, slot), True)
            all_.slots[full, key] = slot
        entry = (kernel, with_keyset)
        slot.kernels.setdefault(self._rank, []).append(entry)
        self._registered.append(((full, key), entry))

    def register_ad_inplace_or_view_fallback(self, name: str) -> None:
        """The same for all ranks: a native kernel."""
        full = self._full(name)
        if full not in self._all.fallbacks:
            self._all.fallbacks[full] = native = self._native("IMPL")
            native.register_ad_inplace_or_view_fallback(name)

    def reset(self) -> None:
        """Gives everything up."""
        all_ = self._all
        for key, entry in self._registered:
            slot = all_.slots.get(key)
            if slot is None:
                continue
            mine = slot.kernels.get(self._rank, [])
            mine[:] = [other for other in mine if other is not entry]
            if not mine:
                slot.kernels.pop(self._rank, None)
            if not slot.kernels:
                all_.slots.pop(key).native.reset()
        for full in self._defined:
            definition = all_.definitions.get(full)
            if definition is not None:
                definition.ranks.discard(self._rank)
                if not definition.ranks:
                    if full in all_.fallbacks:
                        all_.fallbacks.pop(full).reset()
                    all_.definitions.pop(full).native.reset()
        self._registered, self._defined = [], []
        whole = all_.whole.get(self._ns)
        if self._kind == "DEF" and whole is not None:
            whole[1].discard(self._rank)
            if not whole[1]:
                all_.whole.pop(self._ns)[0].reset()


def _entry_copy(entry: Any) -> Any:
    """One operator's fake kernels and rules, with lists of its own."""
    copy = type(entry)(entry.qualname)
    for name, holder in vars(entry).items():
        if hasattr(holder, "__dict__"):
            own = {k: v.copy() if isinstance(v, (list, dict)) else v for k, v in vars(holder).items()}
            vars(getattr(copy, name)).update(own)
    return copy
