"""After a run, what it replaced in torch and in the standard library is back, as it was and not only alike."""

from __future__ import annotations

import atexit
import builtins
import inspect
import os
import select
import socket
import subprocess
import sys
import threading
import time
import warnings
from types import ModuleType
from typing import Any

import allranks
import pytest
import torch
import torch.distributed as dist
from torch._C import _distributed_c10d
from torch.distributed import distributed_c10d

pytestmark = pytest.mark.oldest

MODULES = [
    dist,
    distributed_c10d,
    _distributed_c10d,
    torch,
    time,
    os,
    threading,
    select,
    socket,
    subprocess,
    atexit,
    builtins,
]


def functions(owner: Any) -> dict[tuple[str, str], Any]:
    """What an object holds itself, functions and classes and what binds to them."""
    kept = (property, staticmethod, classmethod)
    return {(repr(owner), name): v for name, v in vars(owner).items() if callable(v) or isinstance(v, kept)}


def everything() -> dict[tuple[str, str], Any]:
    found = functions(torch._C.Future)
    for module in MODULES:
        found.update(functions(module))
        for value in list(vars(module).values()):
            if inspect.isclass(value) and not isinstance(value, ModuleType):
                found.update(functions(value))
    return found


def work() -> None:
    dist.init_process_group("gloo")
    dist.new_group([0])
    dist.all_reduce(torch.ones(1))


def changed() -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Deprecated names of torch's.
        before = everything()
        allranks.run(work, 2)
        after = everything()
    assert len(before) > 1000
    return [f"{owner} {name}" for owner, name in before if after.get((owner, name)) is not before[owner, name]]


def test_a_run_leaves_nothing_replaced() -> None:
    """In a process of its own, where nothing ran before."""
    command = [sys.executable, "-c", "import test_restored as t; print(t.changed())"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stdout + done.stderr
