"""`c10d.Backend` of one rank on one group in all-ranks mode: each method hands one operation to the engine."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

import torch
from torch._C._distributed_c10d import Backend

from allranks import _allranks
from allranks.backend import arguments, deadlines, profiling, sparse
from allranks.backend.after import after
from allranks.backend.deadlines import Deadlines
from allranks.backend.staging import stage
from allranks.backend.work import RankWork, RefusedWork, settle_futures

Tensors = list[torch.Tensor]
_RAW = frozenset(("all_reduce", "broadcast", "reduce", "reduce_scatter", "scatter", "all_to_all_single"))
"""Operations that gloo does on the memory as it lies."""


class RankBackend(Backend):
    """The name, options and refusals are those of the backend that the script named."""

    # torch looks these up as class attributes; left to the base class they recurse without end.
    supports_splitting: ClassVar[bool] = True  # type: ignore[assignment, misc]
    supports_coalescing: ClassVar[bool] = False  # type: ignore[assignment, misc]
    supports_shrinking: ClassVar[bool] = False  # type: ignore[assignment, misc]
    supports_reconfigure: ClassVar[bool] = False  # type: ignore[assignment, misc]
    supports_window: ClassVar[bool] = False  # type: ignore[assignment, misc]
    supports_abort_hooks: ClassVar[bool] = False  # type: ignore[assignment, misc]
    _supports_time_estimate: ClassVar[bool] = False  # type: ignore[assignment, misc]
    supports_time_estimate: ClassVar[bool] = False  # torch 2.14's name of it.

    def __init__(self, run: Any, name: str, key: str, title: str, members: list[int], timeout: timedelta) -> None:
        rank = _allranks.current_rank()
        if rank is None:
            raise RuntimeError("a process group of a run can only be made by a thread of one of its ranks")
        self._run, self._name, self._key, self._members, self._title = run, name, key, members, title
        self._profile = run.profile or ("nccl" if name.startswith("nccl") else "gloo")
        self._member: _allranks.Member = run.world.join(key, title, members, self._profile, rank)
        super().__init__(self._member.group_rank, len(members))
        self._options = Backend.Options(name, timeout)
        self._deadlines = Deadlines(timeout, gloo=self._profile == "gloo", every=run.baton.is_virtual)
        self._splits = 0

    def describe(self, name: str, ranks: list[int]) -> RankBackend:
        """Says in the options what torch says of the group: its name, and its ranks unless it is the default one."""
        self._options.group_name = name  # type: ignore[assignment]
        self._options.global_ranks_in_group = ranks
        return self

    # --- how an operation is handed in

    def _issue(
        self, kind: str, inputs: Tensors, outputs: Tensors, results: list[Any], opts: Any = None, **how: Any
    ) -> RankWork | None:
        if profiling.is_on():
            end = profiling.begin(self._name, kind, inputs or outputs, any_source=kind == "recv" and "root" not in how)
            try:
                return self._issue_now(kind, inputs, outputs, results, opts, how)
            finally:
                end()
        return self._issue_now(kind, inputs, outputs, results, opts, how)

    def _issue_now(
        self, kind: str, inputs: Tensors, outputs: Tensors, results: list[Any], opts: Any, how: dict[str, Any]
    ) -> RankWork | None:
        gloo = self._profile == "gloo"
        asynchronous = opts is None or opts.asyncOp
        how["timeout"] = self._deadlines.limit(opts)
        then = after(kind, inputs, outputs, how.get("op"), self.rank(), self.size()) if gloo else None
        try:
            ticket = self._hand_in(kind, inputs, outputs, asynchronous, how)
        except Exception as error:
            if asynchronous and getattr(error, "late", False):
                return RefusedWork(kind, error)
            raise
        if ticket is None:
            if then is not None:
                then()
            return None
        return RankWork(ticket, kind, results, then, self.size() if gloo else 0)

    def _hand_in(
        self, kind: str, inputs: Tensors, outputs: Tensors, asynchronous: bool, how: dict[str, Any]
    ) -> _allranks.Ticket | None:
        try:
            return self._member.issue(kind, inputs, outputs, asynchronous=asynchronous, **how)
        except _allranks.NeedsStaging:
            pass
        if kind in _RAW and self._profile == "gloo":
            arguments.warn_strided(self._run, kind, inputs, outputs)
        if kind in ("send", "recv") and not (inputs + outputs)[0].is_contiguous():
            raise RuntimeError("input tensor has to be contiguous")
        ins, outs, finish = stage(inputs, outputs, not outputs and kind != "send", kind in _RAW)
        return self._member.issue(kind, ins, outs, asynchronous=asynchronous, finish=finish, **how)

    @staticmethod
    def _op(opts: Any) -> tuple[int, float]:
        return _allranks.reduce_op_of(opts.reduceOp)

    def _no_complex(self, tensors: Tensors) -> None:
        """Complex numbers that a caller did not show as pairs of real ones; functional collectives do not."""
        if self._profile == "gloo" and any(t.is_complex() for t in tensors):
            raise RuntimeError("Invalid scalar type")

    # --- collectives

    def allreduce(self, tensors: Tensors, opts: Any) -> RankWork | None:
        if tensors[0].layout is not torch.strided:
            return self.allreduce_sparse(tensors, opts)
        return self._issue("all_reduce", tensors, [], tensors, opts, op=self._op(opts))

    def allreduce_coalesced(self, tensors: Tensors, opts: Any) -> RankWork | None:
        return self._issue("all_reduce_coalesced", tensors, [], tensors, opts, op=self._op(opts))

    def allreduce_sparse(self, tensors: Tensors, opts: Any) -> RankWork | None:
        kind, op, t = "all_reduce_sparse", self._op(opts), tensors[0]
        sparse.check(t, op)
        then = sparse.after(t)
        ticket = self._member.exchange(
            kind,
            t,
            sparse.combine,
            op=op,
            tensors=tensors,
            asynchronous=opts.asyncOp,
            timeout=self._deadlines.limit(opts),
        )
        if ticket is not None:
            return RankWork(ticket, kind, tensors, then)
        if then is not None:
            then()
        return None

    def broadcast(self, tensors: Tensors, opts: Any) -> RankWork | None:
        return self._issue("broadcast", tensors, [], tensors, opts, root=opts.rootRank)

    def reduce(self, tensors: Tensors, opts: Any) -> RankWork | None:
        return self._issue("reduce", tensors, [], tensors, opts, op=self._op(opts), root=opts.rootRank)

    def allgather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> RankWork | None:
        work = self._issue("all_gather", inputs, outputs[0], outputs[0], opts)
        arguments.warn_aliased(self._run, "all_gather", outputs[0])
        return work

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> RankWork | None:
        return self._issue("all_gather_into_tensor", [input], [output], [output], opts)

    def allgather_coalesced(self, output_lists: list[Tensors], inputs: Tensors, opts: Any) -> RankWork | None:
        outputs = arguments.by_input(output_lists, inputs, self.size())
        return self._issue("all_gather_coalesced", inputs, outputs, output_lists, opts)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> RankWork | None:
        self._no_complex(inputs)
        return self._issue("all_gather_coalesced", inputs, outputs, outputs, opts)

    def gather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> RankWork | None:
        outs = outputs[0] if outputs else []
        work = self._issue("gather", inputs, outs, outs, opts, root=opts.rootRank)
        if outs:
            arguments.warn_aliased(self._run, "gather", outs)
        return work

    def scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> RankWork | None:
        return self._issue("scatter", inputs[0] if inputs else [], outputs, outputs, opts, root=opts.rootRank)

    def reduce_scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> RankWork | None:
        return self._issue("reduce_scatter", inputs[0], outputs, outputs, opts, op=self._op(opts))

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> RankWork | None:
        return self._issue("reduce_scatter_tensor", [input], [output], [output], opts, op=self._op(opts))

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> RankWork | None:
        return self._issue("reduce_scatter_coalesced", inputs, outputs, outputs, opts, op=self._op(opts))

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any) -> RankWork | None:
        return self._issue("all_to_all", inputs, outputs, outputs, opts)

    def all_to_all_single(
        self, output: torch.Tensor, input: torch.Tensor, out_splits: list[int], in_splits: list[int], opts: Any
    ) -> RankWork | None:
        self._no_complex([input])
        if self._profile == "gloo" and not input.is_contiguous():
            raise ValueError("Tensors must be contiguous")
        return self._issue(
            "all_to_all_single",
            [input],
            [output],
            [output],
            opts,
            input_splits=arguments.elements(input, in_splits, self.size()),
            output_splits=arguments.elements(output, out_splits, self.size()),
        )

    def barrier(self, opts: Any) -> RankWork | None:
        return self._issue("barrier", [], [], [], opts)

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool = False) -> None:
        seconds, me = opts.timeout.total_seconds(), self._member.group_rank
        if me == 0 and seconds <= 0 and self.size() > 1:
            message = deadlines.monitored_barrier(0, range(1, self.size()), 0, wait_all_ranks, deadlines.NO_TIME)
            self._run.suspect_absent(self._members[1:], message)
            raise RuntimeError(message)
        ticket = self._member.issue("monitored_barrier", [], [], asynchronous=True)
        assert ticket is not None
        try:
            ticket.wait(seconds, fails=True)
            return
        except RuntimeError:
            pass  # Why it failed is in the ticket.
        absent = ticket.absent()
        message = deadlines.monitored_barrier(me, absent, round(seconds * 1000), wait_all_ranks, ticket.failure)
        self._run.suspect_absent([self._members[a] for a in absent], message)
        raise RuntimeError(message)

    # --- messages

    def send(self, tensors: Tensors, peer: int, tag: int) -> RankWork | None:
        work = self._issue("send", tensors, [], tensors, root=peer, tag=tag)
        if work is not None:
            work.guard(tensors[0], self._run)
        return work

    def recv(self, tensors: Tensors, peer: int, tag: int) -> RankWork | None:
        return self._issue("recv", [], tensors, tensors, root=peer, tag=tag)

    def recv_anysource(self, tensors: Tensors, tag: int) -> RankWork | None:
        return self._issue("recv", [], tensors, tensors, tag=tag)

    # --- the group itself

    def note_new_group(self, members: list[int]) -> None:
        """This rank makes a group of these global ranks: to be compared with what the others make."""
        # A group of one has nobody to be mixed up with: torch's new_subgroups makes such in each subgroup.
        peers = members if len(members) > 1 else []
        self._member.issue("new_group", [], [], members=peers, asynchronous=True)

    def skip_split(self) -> None:
        """Members of a group that is split count alike, in the new groups or not."""
        self._splits += 1

    def split(self, store: Any, ranks: list[int], opts: Any) -> RankBackend:
        """A group of some members (group ranks of this one), of which this rank is one; others `skip_split`."""
        self._splits += 1
        chosen = [self._members[r] for r in ranks]
        title = opts.group_name or f"{self._title}:split{self._splits}"
        timeout = opts._timeout if opts is not None else self._options._timeout
        key = f"{self._key}/split{self._splits}/{title}"
        return RankBackend(self._run, self._name, key, title, chosen, timeout).describe(title, chosen)

    def getBackendName(self) -> str:
        return self._name

    @property
    def options(self) -> Any:
        return self._options

    def set_timeout(self, timeout: timedelta) -> None:
        self._options._timeout = timeout
        self._deadlines.set_default(timeout)

    _set_default_timeout = set_timeout

    def _set_sequence_number_for_group(self) -> None:
        """Sequence numbers exist from the start."""

    def _get_sequence_number_for_group(self) -> int:
        return self._member.next_seq()

    def eager_connect_single_device(self, device: Any) -> None:
        """There is nothing to connect."""

    def supports_tensor_alloc(self, device: Any) -> bool:
        return False

    def shutdown(self) -> None:
        settle_futures()

    def abort(self) -> None:
        """Operations in flight stay what they are: whoever waits for them is reported."""
