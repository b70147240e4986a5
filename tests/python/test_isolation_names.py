"""Says which private name of torch is gone, before anything fails in a stranger way."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import pytest
import torch
import torch.distributed.distributed_c10d as c10d
from allranks.isolation import torch_names as names

pytestmark = pytest.mark.oldest


@pytest.mark.parametrize("name", [names.WORLD, *names.C10D_TABLES, *names.C10D_VALUES, names.REGISTER_GROUP])
def test_c10d(name: str) -> None:
    assert hasattr(c10d, name), f"torch {torch.__version__} has no distributed_c10d.{name}"


@pytest.mark.parametrize("name", [names.THREAD_ISOLATION, "get_debug_level", "set_debug_level"])
def test_native_c10d(name: str) -> None:
    assert hasattr(torch._C._distributed_c10d, name), f"torch {torch.__version__} has no _distributed_c10d.{name}"


def test_unregistering() -> None:
    for name in (names.UNREGISTER_GROUP, names.UNREGISTER_ALL):
        assert hasattr(c10d, name), f"torch {torch.__version__} has no distributed_c10d.{name}"


@pytest.mark.parametrize(
    "pair",
    [*((f"_set_{name}", f"_get_{name}") for name in names.C_FLAGS), *names.C_FLAG_PAIRS],
    ids=lambda pair: pair[0],
)
def test_flags(pair: tuple[str, str]) -> None:
    missing = [name for name in pair if not hasattr(torch._C, name)]
    assert not missing, f"torch {torch.__version__} has no torch._C.{missing}"


def test_all_process_wide_switches_are_known() -> None:
    """Looked for, not listed: what one thread sets and another sees is shared by all ranks unless it is swapped."""
    known = {setter for setter, _ in names.C_FLAG_PAIRS} | {"_set_deterministic_algorithms"}
    known |= {f"_set_{name}" for name in (*names.C_FLAGS, *names.NEWER_C_FLAGS)}
    found = set()
    for setter in [name for name in dir(torch._C) if name.startswith("_set_")]:
        getter = next((g for g in (f"_get{setter[4:]}", f"_is{setter[4:]}", setter[4:]) if hasattr(torch._C, g)), None)
        try:
            before = getattr(torch._C, getter or "")()
            if type(before) is not bool:
                continue
            getattr(torch._C, setter)(not before)
        except (AttributeError, TypeError, RuntimeError):
            continue  # It takes arguments, or this machine has no such switch.
        with ThreadPoolExecutor(1) as other:
            seen = other.submit(getattr(torch._C, getter)).result()
        getattr(torch._C, setter)(before)
        if seen is not before:
            found.add(setter)
    assert len(found) > 10
    assert found <= known, f"torch {torch.__version__} has new switches: {sorted(found - known)}"


def test_all_tables_of_c10d_are_known() -> None:
    """A table of groups that is new in this torch would be shared by all ranks."""
    known = {*names.C10D_TABLES}
    found = {k for k, v in vars(c10d).items() if isinstance(v, dict) and ("pg" in k or "group" in k) and k[0] == "_"}
    assert found <= known, f"torch {torch.__version__} has new tables: {sorted(found - known)}"


@pytest.mark.parametrize("entry", names.REGISTRATIONS, ids=lambda entry: entry[0])
def test_registrations(entry: tuple[str, tuple[str, ...], tuple[str, ...], bool]) -> None:
    module = import_module(entry[0])
    missing = [name for name in (*entry[1], *entry[2]) if not hasattr(module, name)]
    assert not missing, f"torch {torch.__version__} has no {missing} in {entry[0]}"


def test_operators() -> None:
    module, singleton, table = names.OPERATOR_ENTRIES
    assert isinstance(getattr(getattr(import_module(module), singleton), table), dict)
    missing = [name for name in names.ENTRY_CHANGERS if not hasattr(torch.library.Library, name)]
    assert missing in ([], ["register_symm_mem_args"]), f"torch {torch.__version__} has no Library.{missing}"
    assert hasattr(import_module(names.DECOMPOSITIONS[0]), names.DECOMPOSITIONS[1])
    for name in ("_dispatch_library", "_dispatch_get_computed_kernel_for_dispatch_key"):
        assert hasattr(torch._C, name), f"torch {torch.__version__} has no torch._C.{name}"
