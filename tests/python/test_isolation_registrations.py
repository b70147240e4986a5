"""What ranks register in torch and the standard library is each rank's own, as it is each process's under torchrun."""

from __future__ import annotations

import sys
from pathlib import Path

import allranks
import pytest
import torch
from run_support import allranks as command
from run_support import go, torchrun

PROGRAM = Path(__file__).parent / "isolation_programs" / "registrations.py"


def lines(text: str) -> list[str]:
    return sorted(line for line in text.splitlines() if line.startswith("RESULT"))


@pytest.mark.oldest
@pytest.mark.slow
def test_registrations_are_as_in_processes(tmp_path: Path) -> None:
    real = go([*torchrun(2), str(PROGRAM)], tmp_path, limit=100)
    ours = go([*command(), "run", "-q", "-n", "2", str(PROGRAM)], tmp_path, limit=100)
    assert real.status == 0, real.err
    assert lines(ours.out) == lines(real.out), ours.err
    assert len(lines(real.out)) > 40
    assert ours.status == 0, ours.err


def module(folder: Path, name: str, text: str) -> str:
    (folder / f"{name}.py").write_text(text)
    return name


OPERATOR = """
import os
import torch

@torch.library.custom_op("runs::op", mutates_args=())
def op(x: torch.Tensor) -> torch.Tensor:
    return x + int(os.environ["RANK"])
"""


def test_runs_leave_no_operator_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run imports the module anew; between them the dispatcher does not know the operator."""
    monkeypatch.syspath_prepend(str(tmp_path))
    name = module(tmp_path, "an_operator", OPERATOR)

    def body() -> float:
        __import__(name)
        return float(torch.ops.runs.op(torch.ones(1)).item())

    for _ in range(2):
        assert allranks.run(body, world_size=3) == [1.0, 2.0, 3.0]
        assert not torch._C._dispatch_has_kernel("runs::op")
        assert name not in sys.modules


def test_one_name_has_one_schema() -> None:
    def body() -> torch.library.Library:
        torch.distributed.init_process_group("gloo")
        library = torch.library.Library("one_schema", "FRAGMENT")
        library.define(f"op({'Tensor' if torch.distributed.get_rank() else 'int'} x) -> Tensor")
        return library  # Its end would be the definition's.

    with pytest.raises(allranks.RankFailed, match="ranks define the operator one_schema::op differently"):
        allranks.run(body, world_size=2)


SHARED = """
import torch
import torch.utils._pytree as pytree

LIBRARY = torch.library.Library("shared_package", "DEF")
LIBRARY.define("double(Tensor x) -> Tensor")
LIBRARY.impl("double", lambda x: x * 2, "CPU")

class Node:
    pass

pytree.register_pytree_node(Node, lambda node: ([7], None), lambda leaves, _: Node())
torch.serialization.add_safe_globals([Node])
"""


def test_what_a_shared_package_registers_is_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is imported once, by the rank that comes first; that a rank has tables of its own by then changes nothing."""
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    name = module(site, "a_shared_package", SHARED)
    mine = module(tmp_path, "a_module", "import torch\nclass Own: pass\ntorch.serialization.add_safe_globals([Own])\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def body() -> tuple[float, list[int], bool]:
        __import__(mine)
        shared = __import__(name)
        leaves = torch.utils._pytree.tree_leaves(shared.Node())
        safe = torch.serialization.get_safe_globals()
        assert sys.modules[mine].Own in safe
        return float(torch.ops.shared_package.double(torch.ones(1)).item()), leaves, shared.Node in safe

    try:
        assert allranks.run(body, world_size=2) == [(2.0, [7], True)] * 2
    finally:
        sys.modules.pop(name, None)
