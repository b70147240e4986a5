"""Which time-outs count, and what gloo says when one is over.

Under a virtual clock every one does. Under the real clock those that the program chose: one that is torch's default
would only delay what is known at once, so a stall is reported instead. Under the nccl profile none does: NCCL ends the
process, which no program can catch, so the report of the stall is what remains.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from torch.distributed import constants

_DEFAULTS = {
    constants.default_pg_timeout,
    constants.default_pg_nccl_timeout or constants.default_pg_timeout,
    timedelta(seconds=300),  # Of a store.
}
_UNSET = timedelta(0)

BROKEN = "Application timeout caused pair closure"
"""What gloo says of everything on a group after a wait of this rank's timed out there."""


def is_chosen(timeout: timedelta | float) -> bool:
    """Whether the program chose this time-out of a group or a store."""
    return (timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout)) not in _DEFAULTS


class Deadlines:
    """The time-outs of one group: `every` one counts, or chosen ones only."""

    def __init__(self, default: timedelta, *, gloo: bool, every: bool) -> None:
        self._gloo, self._every = gloo, every
        self._default: float | None = None
        self.set_default(default)

    def set_default(self, timeout: timedelta) -> None:
        """For operations that do not say."""
        counts = self._gloo and (self._every or is_chosen(timeout))
        self._default = max(timeout.total_seconds(), 0.0) if counts else None

    def limit(self, opts: Any) -> float | None:
        """Seconds that an operation with these options may take, or None."""
        if not self._gloo:
            return None
        if opts is not None and (timeout := opts.timeout) > _UNSET:
            return float(timeout.total_seconds())
        return self._default


NO_TIME = "Rank 0 timed out in monitoredBarrier after 0 ms.\nNo ranks successfully processed in monitoredBarrier."
"""Why rank 0 of a group gives up that was given no time: before it has asked anybody."""


def monitored_barrier(rank: int, absent: Sequence[int], millis: int, wait_all_ranks: bool, original: str | None) -> str:
    """What rank (of the group) `rank` is told."""
    cause = f"\n Original exception: \n{original}" if original else ""
    if rank != 0:
        return (
            f"Rank {rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv "
            f"from rank 0. Please check rank 0 logs for faulty rank.{cause}"
        )
    if wait_all_ranks:
        return f"[Rank 0]: Ranks {', '.join(map(str, absent))} failed to pass monitoredBarrier in {millis} ms"
    return f"[Rank 0]: Rank {absent[0]} failed to pass monitoredBarrier in {millis} ms{cause}"
