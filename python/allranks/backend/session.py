"""What the backends of one all-ranks run share."""

from __future__ import annotations

import sys

from allranks import _allranks

Place = tuple[int, str, int, str, str]


class Session:
    """The world of a run, and short ways to speak of findings from where the program stands."""

    def __init__(self, world: _allranks.World, baton: _allranks.Baton, profile: str | None) -> None:
        self.world = world
        self.baton = baton
        self.profile = profile

    def poll(self) -> None:
        """Lets others run: for loops that ask again and again."""
        if _allranks.current_task() is not None:
            self.baton.sleep(0.0)

    def here(self, what: str) -> tuple[int, list[Place]]:
        """The rank of this thread, and its place in the user's program."""
        rank = _allranks.current_rank()
        assert rank is not None, "called by a rank thread"
        site = _allranks.user_site(sys._getframe(1))
        return rank, [] if site is None else [(rank, *site, what)]

    def find(self, id: str, severity: str, headline: str, *, what: str, hints: list[str], rule: str) -> None:
        """Reports something that this rank does at this place."""
        rank, places = self.here(what)
        self.world.find(id, severity, headline, places, ranks=[rank], hints=hints, rule=rule)

    def suspect_absent(self, absent: list[int]) -> None:
        """This rank is about to raise because `absent` did not come: if it dies of that, that is the finding."""
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
        )

