"""What the backends of one all-ranks run share."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed import c10d_logger
from torch.distributed import distributed_c10d as c10d

from allranks import _allranks

_TORCH = os.path.dirname(torch.__file__) + os.sep

_CAUSES = 100
"""How far an exception is followed back."""

Place = tuple[int, str, int, str, str]


class Session:
    """The world of a run, and short ways to speak of findings from where the program stands."""

    def __init__(self, world: _allranks.World, baton: _allranks.Baton, profile: str | None) -> None:
        self.world = world
        self.baton = baton
        self.profile = profile
        self.evidence: Any = None

    def here(self, what: str) -> tuple[int, list[Place]]:
        """The rank of this thread, and its place in the user's program."""
        rank = _allranks.current_rank()
        assert rank is not None, "called by a rank thread"
        site = _allranks.user_site(sys._getframe(1))
        return rank, [] if site is None else [(rank, *site, what)]

    def find(
        self,
        id: str,
        severity: str,
        headline: str,
        *,
        what: str,
        hints: list[str],
        rule: str,
        more: Sequence[Place] = (),
    ) -> None:
        """Reports something that this rank does at this place; `more` are further places."""
        rank, places = self.here(what)
        self.world.find(id, severity, headline, [*more, *places], ranks=[rank], hints=hints, rule=rule)

    def diagnose(self, rank: int, error: BaseException) -> None:
        """Before `rank` is reported to have failed by `error`: if it used a group of others, that is the finding."""
        texts: list[str] = []
        cause: BaseException | None = error
        while cause is not None and len(texts) < _CAUSES:
            texts.append(str(cause))
            cause = cause.__cause__ or cause.__context__
        self.world.dies_of(rank, texts)
        outsider = c10d.GroupMember.NON_GROUP_MEMBER
        trace, place = error.__traceback__, None
        while trace is not None:
            frame = trace.tb_frame
            if frame.f_code.co_filename == c10d.__file__ or frame.f_code.co_filename == c10d_logger.__file__:
                group = frame.f_locals.get("group", frame.f_locals.get("kwargs", {}).get("group"))
                if isinstance(group, int) and group == outsider and place is not None:
                    self._suspect_outsider(rank, error, place)
                    return
            elif not frame.f_code.co_filename.startswith(_TORCH):
                place = (frame.f_code.co_filename, trace.tb_lineno, frame.f_code.co_name)
            trace = trace.tb_next

    def _suspect_outsider(self, rank: int, error: BaseException, place: tuple[str, int, str]) -> None:
        text = f"the rank is not a member of the group that it uses: {type(error).__name__}: {error}"
        self.world.suspect(
            rank,
            "not-a-member",
            "error",
            text,
            [(rank, *place, "uses a group of others")],
            ranks=[rank],
            hints=["call it only on members, or test for GroupMember.NON_GROUP_MEMBER"],
            rule="definite",
        )

    def suspect_absent(self, absent: list[int], text: str) -> None:
        """This rank is about to raise `text` because `absent` did not come: if it dies of that, that is the finding."""
        rank, places = self.here("monitored_barrier")
        for other, site, what in self.world.standing([]):
            if other in absent and site is not None:
                places.append((other, *site, what))
        who = f"rank {absent[0]}" if len(absent) == 1 else f"ranks {', '.join(map(str, absent))}"
        self.world.suspect(
            rank,
            "missing-participant",
            "error",
            f"{who} did not come to monitored_barrier in time",
            places,
            ranks=absent,
            hints=[],
            rule="definite",
            text=text,
        )
