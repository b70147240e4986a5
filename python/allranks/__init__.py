"""Every rank of a distributed PyTorch program on one machine.

`allranks run -n 8 train.py` runs a script as all ranks; see the command's help. From Python:

    results = allranks.run(fn, world_size=4, args=(...))    # all ranks, real data; the results in order of ranks

    import allranks                                          # one rank of 64 that have no peers
    dist.init_process_group("allranks", rank=3, world_size=64)

Importing this package imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from allranks import on_import as _on_import
from allranks._allranks import RankAborted

__all__ = ["RankAborted", "RankFailed", "run", "test"]

try:
    __version__ = version("allranks")
except PackageNotFoundError:  # Run from a source tree that was not installed.
    __version__ = "0+unknown"


def run(
    fn: Callable[..., Any],
    world_size: int,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[Any]:
    """Calls `fn(*args, **kwargs)` as every rank of a world, in this process, and returns the results in order of ranks.

    Inside, `dist.init_process_group()` (and everything else) works as under torchrun. Options are those of the command
    line: `profile`, `seed`, `schedule`, `clock`, `watchdog`, `allow_launcher`. Modules that are imported already, that
    of `fn` among them, are shared by the ranks: their globals are one for all.

    Raises `RankFailed` if a rank raises, or if ranks disagree or wait for ever: its text says what was found and where,
    and its `__cause__` is what the rank raised.
    """
    from allranks import launch

    return launch.run_fn(fn, world_size, args, kwargs, **options)


def test(world_size: int | Sequence[int], **options: Any) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Makes a function, or a method of a `unittest.TestCase`, run as all ranks of a world whenever it is called.

    The process group is ready inside. `rank` and `world_size` are passed if the function has parameters of these names.
    What a rank raises is raised, with a note that says what the others did; if no rank can go on, `RankFailed`. A list
    of world sizes runs one after the other, as sub-tests where there are such. `options` are those of
    `@pytest.mark.allranks`: see docs/testing.md. An option that does not exist raises ValueError at once.
    """
    from allranks.testing import decorator, marks

    return decorator.test(marks.parse((world_size,), options, {}, {}))


test.__test__ = False  # type: ignore[attr-defined]  # Imported into a test module, it is no test.


def __getattr__(name: str) -> Any:
    if name == "RankFailed":
        from allranks.launch import RankFailed

        return RankFailed
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _register(_module: Any) -> None:
    from allranks import one_rank

    if hasattr(
        one_rank, "register_plain"
    ):  # Else it is one_rank that imports torch first: who does that, registers too.
        one_rank.register_plain()


#: Makes the backend name "allranks" known as soon as torch is there. The command line, whose runs make it
#: known themselves, stops it.
_stop_registering = _on_import.watch({"torch": _register})
