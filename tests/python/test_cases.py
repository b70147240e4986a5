"""The small programs of `tests/cases`: the correct ones print what real gloo prints, the wrong ones get their finding.

`*.expected` is what real gloo printed. INDEX.tsv says what a program is about and where it comes from; FINDINGS.tsv
which finding a wrong one must get, which ranks that must name and which lines it must show. No run may take 30 s.

`ALLRANKS_SEEDS=5` widens the random schedules; two seeds are the rule, because each run is a process of its own.
"""

from __future__ import annotations

import csv
import os
import pathlib
from dataclasses import dataclass

import pytest
from run_support import CASES, Done, rank_lines, run

LIMIT = 30
SEEDS = range(1, 1 + int(os.environ.get("ALLRANKS_SEEDS", "2")))

#: Wrong programs whose finding is not there yet.
NOT_YET = {
    "138_one_rank_swallows_error.py": "sequence-shift: the rank that swallowed its error is one step ahead; "
    "so far the ranks that miss it at the end are reported",
}


@dataclass(frozen=True)
class Case:
    """A line of INDEX.tsv."""

    name: str
    kind: str
    world: int


@dataclass(frozen=True)
class Rule:
    """A line of FINDINGS.tsv."""

    ids: frozenset[str]
    ranks: frozenset[int]
    lines: frozenset[int]


def table(name: str) -> list[list[str]]:
    with open(CASES / name, newline="") as file:
        return list(csv.reader(file, delimiter="\t"))[1:]


def cases(kind: str) -> list[Case]:
    return [Case(row[0], row[1], int(row[2])) for row in table("INDEX.tsv") if row[1] == kind]


def numbers(text: str) -> frozenset[int]:
    return frozenset(int(part) for part in text.split(",") if part)


RULES = {row[0]: Rule(frozenset(row[1].split("|")), numbers(row[2]), numbers(row[3])) for row in table("FINDINGS.tsv")}
OK = [pytest.param(case, id=case.name[:3]) for case in cases("ok")]
BAD = [
    pytest.param(
        case,
        id=case.name[:3],
        marks=[pytest.mark.xfail(strict=True, reason=NOT_YET[case.name])] if case.name in NOT_YET else [],
    )
    for case in cases("bad")
]


def check_correct(case: Case, done: Done) -> None:
    assert done.status is not None, f"no answer in time\n{done.err}"
    want = (CASES / case.name).with_suffix(".expected").read_text().splitlines()
    assert rank_lines(done.out) == want, done.err
    assert done.status == 0, done.err
    assert not done.findings, done.findings
    assert "allranks: note" not in done.err


def complaint(case: Case, rule: Rule, done: Done) -> str | None:
    """Why no finding is the one that is wanted; None if one is."""
    why = f"no finding is one of {sorted(rule.ids)}; got {[finding['id'] for finding in done.findings]}"
    for finding in done.findings:
        if finding["id"] not in rule.ids:
            continue
        named = {*finding["ranks"], *(place["rank"] for place in finding["locations"])}
        shown = {place["line"] for place in finding["locations"] if pathlib.Path(place["file"]).name == case.name}
        if not rule.ranks <= named:
            why = f"{finding['id']} names ranks {sorted(named)}, must name {sorted(rule.ranks)}"
        elif not rule.lines <= shown:
            why = f"{finding['id']} shows lines {sorted(shown)}, must show {sorted(rule.lines)}"
        else:
            return None
    return why


@pytest.mark.oldest
@pytest.mark.parametrize("case", OK)
def test_correct_programs_print_what_gloo_prints(case: Case, tmp_path: pathlib.Path) -> None:
    check_correct(case, run(CASES / case.name, case.world, tmp_path))


@pytest.mark.parametrize("case", BAD)
def test_wrong_programs_get_their_finding(case: Case, tmp_path: pathlib.Path) -> None:
    done = run(CASES / case.name, case.world, tmp_path)
    assert done.status is not None and done.seconds < LIMIT, f"no answer in time\n{done.err}"
    assert (why := complaint(case, RULES[case.name], done)) is None, f"{why}\n{done.err}"
    errors = [finding for finding in done.findings if finding["severity"] == "error"]
    assert done.status in ((1, 3) if errors else (0, 1))
    assert "allranks/" not in done.err.replace(str(CASES), ""), "no file of ours is shown"
    assert done.err.splitlines()[-2].startswith("reproduce: allranks run "), "how to see it again, then the end"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("case", OK)
def test_the_schedule_changes_nothing(case: Case, seed: int, tmp_path: pathlib.Path) -> None:
    check_correct(case, run(CASES / case.name, case.world, tmp_path, "--schedule", "random", "--seed", str(seed)))


def test_a_seed_gives_the_same_bytes(tmp_path: pathlib.Path) -> None:
    """The order of the ranks' lines included, and another seed really is another order."""
    case = next(case for case in cases("ok") if case.name.startswith("025"))
    outputs = {}
    for seed in ("7", "8", "9"):
        both = [
            run(CASES / case.name, case.world, tmp_path, "--schedule", "random", "--seed", seed).out for _ in range(2)
        ]
        assert both[0] == both[1]
        outputs[both[0]] = seed
    assert len(outputs) > 1
