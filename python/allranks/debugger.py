"""`breakpoint()` and post mortem in one rank: the prompt names it, and only it runs."""

from __future__ import annotations

import pdb
import sys
from typing import Any

from allranks._allranks import current_rank
from allranks.isolation.registry import Registry

_real_init = pdb.Pdb.__init__


def install(registry: Registry) -> None:
    """The prompt of every debugger that a rank makes says whose it is. Ctrl-C stays with the launcher."""

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        rank = current_rank()
        if rank is not None:
            kwargs["nosigint"] = True
        _real_init(self, *args, **kwargs)
        if rank is not None:
            self.prompt = f"(rank {rank} Pdb) "

    registry.patches.set(pdb.Pdb, "__init__", init)


def post_mortem(rank: int, error: BaseException) -> None:
    """A prompt where the error was raised; the other ranks stand still meanwhile."""
    print(f"rank {rank}: {type(error).__name__}: {error}", file=sys.stderr)
    debugger = pdb.Pdb(nosigint=True)
    debugger.prompt = f"(rank {rank} Pdb) "
    debugger.reset()
    debugger.interaction(None, error.__traceback__)
