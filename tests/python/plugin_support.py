"""Runs pytest inside pytest: a file of marked tests, with the plugin, in this process (torch is imported already)."""

from __future__ import annotations

import importlib
import textwrap
from importlib.metadata import entry_points
from typing import Any

import pytest
import torch.distributed  # noqa: F401
from allranks.testing import plugin

# pytester forgets what is imported while it runs, and torch can be imported once.
importlib.import_module("allranks.one_rank")
importlib.import_module("allranks.testing.collecting")

HEAD = """\
import logging, os, sys, threading, time, unittest, warnings
import pytest, torch, torch.distributed as dist
import allranks

def total(x):
    t = torch.tensor([float(x)])
    dist.all_reduce(t)
    return t.item()

def of_all(x):
    out = [None] * dist.get_world_size()
    dist.all_gather_object(out, x)
    return out

m4 = pytest.mark.allranks(world_size=4)
"""

_INSTALLED = any(point.name == "allranks" for point in entry_points(group="pytest11"))
#: For a process of its own.
PLUGIN = () if _INSTALLED else ("-p", "allranks.testing.plugin")


class Session:
    """A run of pytest that is over."""

    def __init__(self, result: pytest.RunResult) -> None:
        self.result = result
        self.text = result.stdout.str()
        self.outcomes = result.parseoutcomes()

    def section(self, title: str) -> str:
        """The text between a title, of a failure or within one, and the next line that begins like it."""
        found = self.text.split(f" {title} ", 1)
        assert len(found) == 2, f"no section {title!r} in:\n{self.text}"
        lines = found[1].split("\n")[1:]
        end = next((i for i, line in enumerate(lines) if line[:5] in ("_____", "=====", "-----")), len(lines))
        return "\n".join(lines[:end])


def run(pytester: pytest.Pytester, body: str, *options: str, cache: bool = False, **files: str) -> Session:
    """Runs `body`, after `HEAD`, as `test_it.py`; `files` are further modules."""
    for name, text in files.items():
        pytester.makepyfile(**{name: textwrap.dedent(text)})
    pytester.makepyfile(test_it=HEAD + textwrap.dedent(body))
    plugins: list[Any] = [] if _INSTALLED else [plugin]
    off = [
        "no:xdist",
        *(("no:cacheprovider",) if not cache else ()),
        *(() if "hypothesis" in body else ("no:hypothesispytest",)),
    ]
    given = [word for name in off for word in ("-p", name)]
    return Session(pytester.runpytest_inprocess(*given, *options, plugins=plugins))
