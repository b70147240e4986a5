"""torch's process-wide switches: a slot appears when a rank first sets one. What is thread-local is set per thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from allranks._allranks import current_rank
from allranks.isolation import placement, torch_names
from allranks.isolation.registry import Registry


def install(registry: Registry) -> None:
    """Waits for torch."""
    registry.on_import("torch", lambda torch: _private(registry, torch))


def _private(registry: Registry, torch: Any) -> None:
    native = torch._C

    def flag(owner: Any, setter: str, read: Callable[[], Any], write: Callable[[Any], Any], key: str) -> None:
        registry.on_call(owner, setter, lambda: registry.call(read, write, key=key))

    pairs = [(f"_set_{name}", f"_get_{name}") for name in (*torch_names.C_FLAGS, *torch_names.NEWER_C_FLAGS)]
    for setter, getter in [*pairs, *torch_names.C_FLAG_PAIRS]:
        write, read = getattr(native, setter, None), getattr(native, getter, None)
        if write is not None and read is not None:
            flag(native, setter, read, write, setter)
    _properties(registry, torch)

    set_dtype = native._set_default_dtype
    flag(torch, "set_default_dtype", torch.get_default_dtype, set_dtype, "default dtype")
    flag(torch, "set_default_tensor_type", torch.get_default_dtype, set_dtype, "default dtype")

    set_deterministic = native._set_deterministic_algorithms

    def deterministic() -> tuple[bool, bool]:
        return (
            native._get_deterministic_algorithms(),
            native._get_deterministic_algorithms_warn_only(),
        )

    flag(
        native,
        "_set_deterministic_algorithms",
        deterministic,
        lambda value: set_deterministic(value[0], warn_only=value[1]),
        "deterministic",
    )
    set_anomaly = native.set_anomaly_enabled
    flag(
        torch,
        "set_anomaly_enabled",
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda value: set_anomaly(*value),
        "anomaly",
    )
    registry.on_call(torch, "set_printoptions", lambda: registry.attributes(torch._tensor_str.PRINT_OPTS))
    registry.on_call(torch._tensor_str, "set_printoptions", lambda: registry.attributes(torch._tensor_str.PRINT_OPTS))
    _threads(registry, torch)


def _properties(registry: Registry, torch: Any) -> None:
    """`torch.backends.*.flag = x` holds the C functions in a descriptor."""
    prop = torch.backends.ContextProp
    real = prop.__set__

    def assign(self: Any, instance: Any, value: Any) -> None:
        if current_rank() is not None and callable(self.getter) and callable(self.setter):
            read, write = self.getter, self.setter
            known = getattr(read, "__wrapped__", read), getattr(write, "__wrapped__", write)
            name = getattr(known[1], "__name__", "")
            if not name.startswith("_set_"):
                name = f"property {id(self)}"
            registry.call(known[0], known[1], key=name)
        real(self, instance, value)

    registry.patches.set(prop, "__set__", assign)


def _threads(registry: Registry, torch: Any) -> None:
    """torchrun gives each rank one intra-op thread; backward runs on the rank's own thread, which holds the baton."""
    real_set = torch.set_num_threads
    touched = [False]

    def set_num_threads(count: int) -> None:
        if current_rank() is not None:
            touched[0] = True
            if isinstance(count, int) and count > 1:
                placement.unpin()  # Before the pool starts: its threads inherit.
        real_set(count)

    registry.patches.set(torch, "set_num_threads", set_num_threads)
    before = torch.get_num_threads()
    registry.at_close.append(lambda: real_set(before) if touched[0] or before != torch.get_num_threads() else None)

    def begin(_rank: int) -> None:
        torch.autograd.set_multithreading_enabled(False)
        import os

        count = os.environ.get("OMP_NUM_THREADS", "")
        wanted = int(count) if count.isdigit() and int(count) > 0 else 1
        if torch.get_num_threads() != wanted:
            real_set(wanted)

    registry.at_rank_start.append(begin)

    def apply(count: int) -> None:
        torch.autograd.set_multithreading_enabled(False)
        if torch.get_num_threads() != count:
            real_set(count)

    registry.thread_state.append((torch.get_num_threads, apply))
