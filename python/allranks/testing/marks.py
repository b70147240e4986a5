"""The options of `@pytest.mark.allranks` and `@allranks.test`: their names, their types, and what follows from them.

Imports neither torch nor pytest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

#: Every option with what may be given; in the order of the documentation.
KNOWN = {
    "world_size": "a number of ranks, or several: world_size=[2, 4]",
    "backend": 'what init_process_group gets: a name such as "gloo", or None',
    "init": "whether the process group is made before the test, True or False",
    "profile": '"gloo" or "nccl"',
    "schedule": '"round-robin" or "random"',
    "seed": "a number, or several: seed=[1, 2, 3]",
    "schedules": "a number of random schedules to run the test under",
    "clock": '"real" or "virtual"',
    "rank": "the only rank that is run, of a world without peers",
    "watchdog": "seconds until a rank that never waits is named, or None",
}
SCHEDULES = ("round-robin", "random")
CLOCKS = ("real", "virtual")
PROFILES = ("gloo", "nccl")


class BadOptions(ValueError):
    """An option that does not exist, or a value that it cannot have."""


@dataclass(frozen=True)
class Case:
    """One run of a test: everything that it depends on."""

    world_size: int
    backend: str | None = "gloo"
    init: bool = True
    profile: str | None = None
    schedule: str = "round-robin"
    seed: int = 0
    clock: str = "real"
    rank: int | None = None
    watchdog: float | None = 10.0


@dataclass(frozen=True)
class Asked:
    """What a test asks for; `cases` are the runs."""

    world_sizes: tuple[int, ...]
    seeds: tuple[int, ...] = (0,)
    base: Case = field(default_factory=lambda: Case(1))

    def cases(self, world_size: int) -> list[Case]:
        """The runs at one of its world sizes."""
        return [replace(self.base, world_size=world_size, seed=seed) for seed in self.seeds]


def parse(
    args: Sequence[Any], options: Mapping[str, Any], defaults: Mapping[str, Any], forced: Mapping[str, Any]
) -> Asked:
    """`args` and `options` as given to the mark; `defaults` hold where it says nothing, `forced` in any case.

    Raises `BadOptions` with a text that names the option and what it may be.
    """
    given = dict(options)
    if len(args) > 1:
        raise BadOptions("only world_size may be given without its name")
    if args:
        if "world_size" in given:
            raise BadOptions("world_size is given twice")
        given["world_size"] = args[0]
    if "faults" in given:
        raise BadOptions("faults= does not exist yet")
    unknown = sorted(set(given) - set(KNOWN))
    if unknown:
        raise BadOptions(f"no option {unknown[0]!r}; there are {', '.join(KNOWN)}")
    values = {**defaults, **given, **forced}
    if "seed" in forced or "schedule" in forced:
        values.pop("schedules", None)
        if "seed" not in forced and isinstance(values.get("seed"), list | tuple):
            values["seed"] = values["seed"][0]
    if "world_size" not in values:
        raise BadOptions("world_size is missing: @pytest.mark.allranks(world_size=4)")
    sizes = _numbers("world_size", values["world_size"], least=1)
    seeds, schedule = _schedules(values)
    base = Case(
        world_size=sizes[0],
        backend=_text("backend", values.get("backend", "gloo"), optional=True),
        init=_bool("init", values.get("init", True)),
        profile=_text("profile", values.get("profile"), PROFILES, optional=True),
        schedule=schedule,
        clock=_text("clock", values.get("clock", "real"), CLOCKS) or "real",
        rank=None if values.get("rank") is None else _number("rank", values["rank"], least=0),
        watchdog=_seconds("watchdog", values.get("watchdog", 10.0)),
    )
    if base.rank is not None:
        if base.rank >= min(sizes):
            raise BadOptions(f"rank={base.rank} is not in a world of {min(sizes)}")
        if schedule != "round-robin" or len(seeds) > 1 or base.clock != "real":
            raise BadOptions("one rank alone has no schedule and no clock: rank= excludes schedule=, seeds and clock=")
    return Asked(sizes, seeds, base)


def _schedules(values: Mapping[str, Any]) -> tuple[tuple[int, ...], str]:
    seeds = _numbers("seed", values.get("seed", 0), least=0)
    if len(seeds) > 1 or "schedules" in values:
        if values.get("schedule", "random") != "random":
            raise BadOptions("several seeds are for schedule='random'")
        schedule = "random"
    else:
        schedule = _text("schedule", values.get("schedule", "round-robin"), SCHEDULES) or ""
    if "schedules" in values:
        if len(seeds) > 1:
            raise BadOptions("either schedules= or several seeds")
        count = _number("schedules", values["schedules"], least=1)
        seeds = tuple(range(seeds[0], seeds[0] + count))
    return seeds, schedule


def _wrong(name: str, value: Any) -> BadOptions:
    return BadOptions(f"{name}={value!r}: it is {KNOWN[name]}")


def _number(name: str, value: Any, *, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise _wrong(name, value)
    return value


def _numbers(name: str, value: Any, *, least: int) -> tuple[int, ...]:
    if isinstance(value, bool | str) or not isinstance(value, int | Iterable):
        raise _wrong(name, value)
    several = (value,) if isinstance(value, int) else tuple(value)
    if not several or len(set(several)) < len(several):
        raise _wrong(name, value)
    for one in several:
        _number(name, one, least=least)
    return several


def _text(name: str, value: Any, among: Sequence[str] = (), *, optional: bool = False) -> str | None:
    if value is None and optional:
        return None
    if not isinstance(value, str) or (among and value not in among):
        raise _wrong(name, value)
    return value


def _bool(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(name, value)
    return value


def _seconds(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise _wrong(name, value)
    return float(value)
