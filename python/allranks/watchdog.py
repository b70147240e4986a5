"""What the main thread looks after while ranks run: one that never hands over, and Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from allranks import _allranks, debugger
from allranks.runtime import Runtime


def say(text: str) -> None:
    """To the process's own stderr, whichever rank's is in place."""
    stream = sys.__stderr__
    if stream is not None:
        with contextlib.suppress(Exception):
            stream.write(f"allranks: {text}\n")
            stream.flush()


class Watchdog:
    """Names a rank that runs for long while others wait. A warning, once for each place; nothing is ended."""

    def __init__(self, run: Runtime, seconds: float | None) -> None:
        self._run, self._seconds = run, seconds
        self._seen: tuple[int | None, int] = (None, -1)
        self._since = time.monotonic()
        self._named: set[tuple[str, int]] = set()
        self._aborted_at: float | None = None

    def aborted_for(self) -> float:
        """Seconds since the run was first seen aborted."""
        if self._aborted_at is None:
            self._aborted_at = time.monotonic()
        return time.monotonic() - self._aborted_at

    def look(self) -> None:
        """Compares with the last look; call it every so often."""
        holder = self._run.baton.holder()
        now = time.monotonic()
        if holder != self._seen or debugger.open_prompts:
            self._seen, self._since = holder, now
            return
        if self._seconds is None or now - self._since < self._seconds:
            return
        self._since = now
        tasks = self._run.baton.tasks()
        if holder[0] is None:
            self._name_idle(tasks)
            return
        rank = next((rank for task, rank, _, _ in tasks if task == holder[0]), None)
        others = {r for _, r, daemon, state in tasks if state in ("runnable", "blocked") and not daemon and r != rank}
        ident = self._run.baton.threads().get(holder[0])
        frame = sys._current_frames().get(ident) if ident is not None else None
        if rank is None or not others or frame is None:
            return
        file, line, _ = _allranks.user_site(frame) or (frame.f_code.co_filename, frame.f_lineno, "")
        if (file, line) in self._named:
            return
        self._named.add((file, line))
        waiting = f"{len(others)} other rank{'s' if len(others) > 1 else ''}"
        say(
            f"warning: rank {rank} has run for {self._seconds:g} s without waiting for anybody, while {waiting} "
            f"cannot go on; it stands here:\n{_stack(frame)}"
        )

    def _name_idle(self, tasks: list[tuple[int, int, bool, str]]) -> None:
        """Nobody runs: those who sleep, or stand in a system call, keep the others waiting."""
        waiting = {rank for _, rank, daemon, state in tasks if state == "blocked" and not daemon}
        frames, threads = sys._current_frames(), self._run.baton.threads()
        for task, rank, daemon, state in tasks:
            frame = frames.get(threads.get(task, -1))
            if state not in ("sleeping", "outside") or daemon or not waiting - {rank} or frame is None:
                continue
            file, line, _ = _allranks.user_site(frame) or (frame.f_code.co_filename, frame.f_lineno, "")
            if (file, line) in self._named:
                continue
            self._named.add((file, line))
            does = "slept" if state == "sleeping" else "been in a system call"
            others = len(waiting - {rank})
            say(
                f"warning: rank {rank} has {does} for {self._seconds:g} s, while {others} other "
                f"rank{'s' if others > 1 else ''} cannot go on; it stands here:\n{_stack(frame)}"
            )


def _stack(frame: Any) -> str:
    ours = os.path.dirname(os.path.abspath(__file__)) + os.sep
    shown = [entry for entry in traceback.extract_stack(frame) if not entry.filename.startswith(ours)]
    shown = [entry for entry in shown if os.path.basename(entry.filename) != "threading.py"]
    return "".join(traceback.format_list(shown)).rstrip()


@dataclass(frozen=True)
class Stand:
    """Where a rank stands: file, line and function of its program (None before its first line), and what it does."""

    rank: int
    site: tuple[str, int, str] | None
    doing: str


def where_ranks_stand(run: Runtime, stores: Sequence[Any] = (), *, stalled: bool = False) -> list[Stand]:
    """Of every rank that has not ended, in order; `stores` are the keys that tasks wait for.

    In a stall, who noticed it was about to wait too.
    """
    waits: dict[int, tuple[Any, str]] = {}
    with contextlib.suppress(Exception):
        for rank, site, what in run.world.standing(stores):
            waits.setdefault(rank, (site, what))
    frames, threads = sys._current_frames(), run.baton.threads()
    found: dict[int, Stand] = {}
    for task, rank, daemon, state in run.baton.tasks():
        if state == "done" or daemon or rank in found:
            continue
        site, what = waits.get(rank, (None, ""))
        frame = frames.get(threads.get(task, -1))
        if site is None and frame is not None:
            site = _allranks.user_site(frame)
        found[rank] = Stand(rank, site, _doing("blocked" if stalled and state == "running" else state, what))
    return [found[rank] for rank in sorted(found)]


def say_where_ranks_stand(run: Runtime) -> None:
    """One line a rank: where in its program, and what it waits for."""
    run.stood = where_ranks_stand(run)
    lines = []
    for stand in run.stood:
        where = f"{stand.site[0]}:{stand.site[1]}, in {stand.site[2]}" if stand.site else "before its first line"
        lines.append(f"  rank {stand.rank}: {where} ({stand.doing})")
    say("interrupted; the ranks stood here:\n" + "\n".join(lines) if lines else "interrupted")


def _doing(state: str, what: str) -> str:
    if state == "running":
        return "runs"
    if what:
        return what if what.startswith("waits") else f"waits {what}" if what.startswith("in ") else f"waits in {what}"
    return {"blocked": "waits", "sleeping": "sleeps", "runnable": "could run"}.get(state, state)


@contextlib.contextmanager
def second_interrupt_exits() -> Iterator[None]:
    """Another Ctrl-C meanwhile ends the process at once."""
    try:
        before = signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    except ValueError:
        yield  # Not on the main thread: nothing to catch.
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
