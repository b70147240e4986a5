"""`c10d.Backend` of the one rank on one group. Its operations are Rust objects, which torch calls directly."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

import torch
from torch._C._distributed_c10d import Backend

from allranks import _allranks
from allranks.one_rank.work import Finished

Tensors = list[torch.Tensor]
_OVERRIDDEN = ("recv_anysource",)


class OneRankBackend(Backend):
    """`name` is what the script asked for; `members` are global ranks by group rank."""

    # torch looks these up as class attributes; left to the base class they recurse without end.
    supports_splitting: ClassVar[bool] = True  # type: ignore[assignment, misc]
    supports_coalescing: ClassVar[bool] = True  # type: ignore[assignment, misc]
    supports_shrinking: ClassVar[bool] = False  # type: ignore[assignment, misc]
    supports_reconfigure: ClassVar[bool] = False  # type: ignore[assignment, misc]
    supports_window: ClassVar[bool] = False  # type: ignore[assignment, misc]
    supports_abort_hooks: ClassVar[bool] = False  # type: ignore[assignment, misc]
    _supports_time_estimate: ClassVar[bool] = False  # type: ignore[assignment, misc]

    def __init__(
        self,
        world: _allranks.FakeWorld,
        name: str,
        title: str,
        group_rank: int,
        members: list[int],
        timeout: timedelta,
        profile: str | None,
    ) -> None:
        super().__init__(group_rank, len(members))
        self._world, self._name, self._title, self._members, self._profile = world, name, title, members, profile
        gloo = name == "gloo"
        self._group = world.join(title, group_rank, members, profile=profile, counting="gloo" if gloo else "nccl")
        if gloo:  # Each message of a batch is an operation of its own.
            self.supports_coalescing = False  # type: ignore[misc]
        self._options = Backend.Options(name, timeout)
        self._options.global_ranks_in_group = members
        self._options.group_name = title  # type: ignore[assignment]
        self._children = 0
        # As attributes of the instance: found by torch's look-up, and already bound to the group.
        for method in _allranks.FakeGroup.methods():
            if method not in _OVERRIDDEN:
                setattr(self, method, self._group.method(method))

    # --- operations that are more than one call

    def note(self, kind: str, dtype: str | None = None, numel: int = 0) -> None:
        """Counts an operation that is carried out elsewhere."""
        self._group.note(kind, dtype=dtype, numel=numel)

    def any_source(self) -> int:
        """Whose message comes where any is welcome: the lowest other rank's."""
        return 1 if self.rank() == 0 and self.size() > 1 else 0

    def gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Finished | None:
        outputs = [list(output.chunk(self.size()))] if opts.rootRank == self.rank() else []
        result: Finished | None = self._group.method("gather")(outputs, [input], opts)
        return result

    def recv_anysource(self, tensors: Tensors, tag: int) -> Finished:
        work: Finished = self._group.method("recv_anysource")(tensors, tag)
        work.source = self.any_source()
        return work

    def monitored_barrier(self, timeout: Any, wait_all_ranks: bool = False) -> None:
        self._group.note("monitored_barrier")

    def start_coalescing(self) -> None:
        self._group.start_coalescing()

    def end_coalescing(self) -> Finished:
        self._group.end_coalescing()
        return Finished([])

    # --- the group itself

    def _child(self, group_rank: int, members: list[int], opts: Any, what: str) -> OneRankBackend:
        self._children += 1
        title = getattr(opts, "group_name", "") or f"{self._title}:{what}{self._children}"
        timeout = opts._timeout if opts is not None else self._options._timeout
        return OneRankBackend(self._world, self._name, title, group_rank, members, timeout, self._profile)

    def split(self, store: Any, ranks: list[int], opts: Any) -> OneRankBackend | None:
        """A group of some members (group ranks of this one); None if this rank is not among them."""
        if self.rank() not in ranks:
            return None
        return self._child(ranks.index(self.rank()), [self._members[r] for r in ranks], opts, "split")

    def merge(self, store: Any, opts: Any, rank: int, size: int) -> OneRankBackend:
        """A group of `size`, whose other members are made up."""
        return self._child(rank, list(range(size)), opts, "merge")

    def perform_nocolor_split(self, device: Any) -> None:
        """Nothing: there is nobody to take part with."""

    def eager_connect_single_device(self, device: Any) -> None:
        """Nothing to connect."""

    def getBackendName(self) -> str:
        return self._name

    @property
    def options(self) -> Any:
        return self._options

    def set_timeout(self, timeout: timedelta) -> None:
        self._options._timeout = timeout

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self._options._timeout = timeout

    def _set_sequence_number_for_group(self) -> None:
        """Counting starts at 0 by itself."""

    def _get_sequence_number_for_group(self) -> int:
        return self._group.sequence_number

    def _wait_for_pending_works(self) -> None:
        """Nothing is ever pending."""

    def _enable_collectives_timing(self) -> None:
        """There is nothing to time."""

    def shutdown(self) -> None:
        """Nothing to shut down."""

    def abort(self) -> None:
        """Nothing to abort."""
