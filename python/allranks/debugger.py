"""`breakpoint()` and post mortem in one rank: the prompt names it, and only it runs."""

from __future__ import annotations

import functools
import sys
from typing import Any

from allranks._allranks import current_rank
from allranks.isolation.registry import Registry

#: How many prompts are open. While one is, reading from the terminal keeps the baton and the watchdog is silent.
open_prompts = 0


def install(registry: Registry, pdb: Any) -> None:
    """Debuggers that a rank makes name it in their prompt. Ctrl-C stays with the launcher."""

    def making(original: Any) -> Any:
        @functools.wraps(original)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            rank = current_rank()
            if rank is not None:
                kwargs["nosigint"] = True
            original(self, *args, **kwargs)
            if rank is not None:
                self.prompt = f"(rank {rank} Pdb) "

        return init

    def prompting(original: Any) -> Any:
        @functools.wraps(original)
        def cmdloop(self: Any) -> Any:
            global open_prompts
            open_prompts += 1
            try:
                return original(self)
            finally:
                open_prompts -= 1

        return cmdloop

    registry.patches.wrap(pdb.Pdb, "__init__", making)
    registry.patches.wrap(pdb.Pdb, "_cmdloop", prompting)


def post_mortem(rank: int, error: BaseException) -> None:
    """A prompt where the error was raised; the other ranks stand still meanwhile."""
    import pdb

    print(f"rank {rank}: {type(error).__name__}: {error}", file=sys.stderr)
    debugger = pdb.Pdb()
    debugger.prompt = f"(rank {rank} Pdb) "
    debugger.reset()
    debugger.interaction(None, error.__traceback__)
