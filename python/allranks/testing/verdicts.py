"""One outcome of what the ranks did: what a test raises, and what is said beside it. Knows nothing of pytest."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from allranks import launch
from allranks.testing.runs import Record, Result

#: How many of several texts are shown.
_SHOWN = 4
_IN = {"start": "its setup", "setup": "its setup", "call": "the test", "teardown": "its teardown"}

#: Makes the error for a test that no rank's own error explains: text, and the first rank to name or -1.
Maker = Callable[[str, int], BaseException]


@dataclass
class Verdict:
    """What becomes of a test."""

    #: What it raises; None if it passed.
    error: BaseException | None = None
    #: "setup", "call" or "teardown".
    stage: str = "call"
    #: What is shown with the error: lines, without the error itself.
    text: str = ""
    #: The error is no failure of the ranks: they agree to skip, or somebody pressed Ctrl-C.
    plain: bool = False
    #: Findings that are no errors, if the test passed.
    warnings: list[str] = field(default_factory=list)
    #: What cleaning up raised on the first rank where it did, and what is shown with it.
    teardown_error: BaseException | None = None
    teardown_text: str = ""


def judge(result: Result, make: Maker, repeat: str) -> Verdict:
    """`repeat` says how to see the same again."""
    verdict = _judge(result, make)
    if verdict.error is not None and not verdict.plain:
        verdict.text = f"{verdict.text}\n{repeat}".lstrip()
    cleaning = [record for record in result.records if record.teardown_error is not None]
    if cleaning and verdict.error is None:
        verdict.teardown_error = cleaning[0].teardown_error
        lines = _folded(cleaning, lambda r: (_line(r.teardown_error), "failed while cleaning up"), len(result.records))
        verdict.teardown_text = "\n".join([*lines, repeat])
    return verdict


def _judge(result: Result, make: Maker) -> Verdict:
    if result.interrupted:
        return Verdict(KeyboardInterrupt(), text="\n".join(_stood(result)), plain=True)
    if result.failed:
        return _raised(result)
    left = [record for record in result.records if _left(result, record) is not None]
    stopped = [record for record in result.records if not record.finished and record not in left]
    differ = _skips_differ(result.records)
    if left:
        lines = _folded(left, lambda r: ("", _did(result, r)), len(result.records))
        return _unexplained(result, make, lines, left[0].rank)
    if result.has_error or stopped:
        who = stopped[0].rank if stopped else -1
        return _unexplained(result, make, differ, who)
    if differ:
        return _unexplained(result, make, ["the ranks do not agree on the outcome:", *differ], -1)
    first = result.records[0]
    if first.error is not None:
        return Verdict(first.error, first.error_stage, plain=True)
    return Verdict(warnings=[result.text] if result.findings else [])


def _raised(result: Result) -> Verdict:
    """A rank's own error is the test's; the first in time."""
    first = result.failed[0]
    lines = _failures(result)
    others = [record for record in result.records if record.outcome != "failed"]
    if result.stood:
        lines += _stood(result, but=[record.rank for record in result.failed])
    elif others:
        lines += _folded(others, lambda r: ("", _did(result, r)), len(result.records))
    if result.stuck:
        lines.append(f"{ranks_text(result.stuck)} did not stop when asked to")
    known = {json.loads(finding)["id"] for finding in result.findings}
    if known - {"rank-failed"}:
        lines.append(result.text)
    return Verdict(first.error, first.error_stage, "\n".join(lines))


def _failures(result: Result) -> list[str]:
    """A line for each place where ranks failed; if their errors differ in words, some of these."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in result.failed:
        groups.setdefault((type(record.error), record.place, record.error_stage), []).append(record)
    lines = []
    for (_, place, stage), records in groups.items():
        who = _who([record.rank for record in records], len(result.records))
        where = f"{who} failed{'' if stage == 'call' else ' in setup'}{_at(place)}"
        texts: dict[str, list[int]] = {}
        for record in sorted(records, key=lambda record: record.rank):
            texts.setdefault(_line(record.error), []).append(record.rank)
        if len(texts) == 1:
            lines.append(f"{where}: {next(iter(texts))}")
            continue
        lines.append(f"{where}:")
        shown = list(texts.items())[:_SHOWN]
        lines += [f"  {ranks_text(ranks)}: {text}" for text, ranks in shown]
        if len(texts) > _SHOWN:
            lines.append(f"  and {len(texts) - _SHOWN} more")
    return lines


def _did(result: Result, record: Record) -> str:
    if record.outcome != "passed":
        return f"{record.outcome}: {record.error}"
    if (status := _left(result, record)) is not None:
        number = next(one.signal for one in result.ranks if one.rank == record.rank)
        by = f"os._exit({status})" if number is None else signal.Signals(number).name
        return f"ended by {by} in {_IN[record.stage]}"
    return "finished" if record.finished else "stopped"


def _left(result: Result, record: Record) -> int | None:
    """The status with which it ended by itself, not by finishing."""
    ended = next((one for one in result.ranks if one.rank == record.rank), None)
    return None if record.finished or ended is None else ended.status


def _unexplained(result: Result, make: Maker, lines: list[str], rank: int) -> Verdict:
    """Nobody raised. The text is the error's own: it is shown once."""
    if result.stuck:
        lines = [*lines, f"{ranks_text(result.stuck)} did not stop when asked to"]
    text = "\n".join([*lines, *([result.text] if result.text else [])])
    return Verdict(make(text or "the run could not go on", rank))


def _skips_differ(records: list[Record]) -> list[str]:
    """What each rank did, if some were skipped and others not, or for other reasons."""
    kinds = {(record.outcome, str(record.error) if record.error is not None else "") for record in records}
    if len({kind for kind, _ in kinds}) < 2:
        return []

    def what(record: Record) -> tuple[str, str]:
        if record.outcome == "passed":
            return "", "passed" if record.finished else "stopped"
        return str(record.error), record.outcome

    return _folded(records, what, len(records))


def _stood(result: Result, but: Iterable[int] = ()) -> list[str]:
    skipped = set(but)
    lines: dict[tuple[str, str], list[int]] = {}
    for stand in result.stood:
        if stand.rank not in skipped:
            where = _at((stand.site[0], stand.site[1], stand.site[2])) if stand.site else ""
            lines.setdefault((stand.doing, where), []).append(stand.rank)
    standing = {stand.rank for stand in result.stood}
    ended = [record for record in result.records if record.rank not in standing | skipped]
    told = [f"{ranks_text(ranks)} stood{where} ({doing})" for (doing, where), ranks in lines.items()]
    return told + _folded(ended, lambda r: ("", _did(result, r)), len(result.records))


def _folded(records: list[Record], what: Callable[[Record], tuple[str, str]], total: int) -> list[str]:
    """A line for each thing that ranks have in common, in the order of the first of them."""
    groups: dict[tuple[str, str], list[int]] = {}
    for record in records:
        groups.setdefault(what(record), []).append(record.rank)
    lines = []
    for (text, did), ranks in groups.items():
        lines.append(f"{_who(ranks, total)} {did}{': ' if text else ''}{text}")
    return lines


def _who(ranks: list[int], total: int) -> str:
    return ranks_text(ranks) if len(ranks) < total or total == 1 else f"all {total} ranks"


def ranks_text(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0-2, 5`."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and spans[-1][1] == rank - 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
    return f"rank {text}" if len(spans) == 1 and spans[0][0] == spans[0][1] else f"ranks {text}"


def _line(error: BaseException | None) -> str:
    assert error is not None
    if isinstance(error, SystemExit):
        return f"sys.exit({error.code!r})"
    return launch.one_line(error)


def _at(place: tuple[str | None, int, str]) -> str:
    """` at FILE:LINE, in FUNCTION`; the file as short as it can be said from here."""
    file, line, function = place
    if file is None:
        return ""
    inside = os.path.abspath(file).startswith(os.getcwd() + os.sep)
    return f" at {os.path.relpath(file) if inside else file}:{line}, in {function}"


def note(error: Any, text: str) -> None:
    """Adds `text` to what is shown with the error; also where Python has no `add_note` yet."""
    if hasattr(error, "add_note"):
        error.add_note(text)
    else:
        error.__notes__ = [*getattr(error, "__notes__", []), text]
