"""Runs programs that `soak` writes, on one of two sides: `execute.py ours` or `execute.py gloo`.

One JSON object a line comes in: `world` (ranks), `seed`, `text` (the program), `schedule`, `schedule_seed`. One goes
out: `ranks`, for each rank its `notes` (step to what was noted) and its `error`; `findings`; or `lost`, if a process
died or hung. `ours` is all ranks in this process; `gloo` is a process for each rank, kept from program to program.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable
from datetime import timedelta
from multiprocessing import connection
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import values

warnings.filterwarnings("ignore")
RANKS = 6
#: A gloo program that takes longer hangs; in seconds. gloo's own limit is below.
LIMIT = 40.0
TIMEOUT = timedelta(seconds=25)

Request = dict[str, Any]
Notes = dict[int, list[str]]


def execute(code: Any, rank: int, world: int, notes: Notes) -> None:
    """The program as one rank of the default group, which exists."""

    def note(step: int, *results: Any) -> None:
        notes.setdefault(step, []).extend(map(values.mark, results))

    names = {name: getattr(values, name) for name in ("made", "fed", "scarce", "thing", "listed", "spoil")}
    exec(code, {"rank": rank, "world": world, "note": note, "torch": torch, "dist": dist, "funcol": funcol, **names})
    # Not `barrier`, which raises once more what an operation before it raised, if it comes soon enough.
    dist.monitored_barrier()


def named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def answer(notes: list[Notes], errors: list[str | None]) -> dict[str, Any]:
    return {"ranks": [{"notes": n, "error": e} for n, e in zip(notes, errors)]}


# --- all ranks in this process


def ours(request: Request) -> dict[str, Any]:
    from allranks import _allranks, launch

    world = request["world"]
    values.SEED = request["seed"]
    code = compile(request["text"], f"program {request['seed']}", "exec")
    notes: list[Notes] = [{} for _ in range(world)]

    def target(rank: int) -> None:
        dist.init_process_group("gloo")
        execute(code, rank, world, notes[rank])
        dist.destroy_process_group()

    options = launch.Options(world, seed=request["schedule_seed"], schedule=request["schedule"])
    outcome = launch.run_all_ranks(options, target, show_errors=False)
    errors = [
        named(r.error) if r.error is not None else None if r.status == 0 else f"stopped: {r.status}"
        for r in outcome.ranks
    ]
    return {**answer(notes, errors), "findings": _allranks.findings_text(outcome.world).strip()}


# --- a process for each rank


class Lost(Exception):
    """A process died or hung."""


def worker(rank: int, port: int, pipe: connection.Connection, others: list[connection.Connection]) -> None:
    """A rank of many programs. The first one hosts the store and says where."""
    # Left open, they would keep the pipes alive when the parent dies, and this process with them.
    for other in others:
        other.close()
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=rank == 0, wait_for_workers=False)
    if rank == 0:
        pipe.send(store.port)
    while True:
        try:
            serial, request = pipe.recv()
        except EOFError:
            return
        values.SEED = request["seed"]
        notes: Notes = {}
        error = None
        world = request["world"]
        try:
            code = compile(request["text"], f"program {request['seed']}", "exec")
            own = dist.PrefixStore(f"program {serial}", store)
            dist.init_process_group("gloo", store=own, rank=rank, world_size=world, timeout=TIMEOUT)
            execute(code, rank, world, notes)
        except Exception as raised:
            error = named(raised)
        with contextlib.suppress(Exception):  # What is left of a group after an error may not be destroyable.
            dist.destroy_process_group()
        pipe.send((notes, error))


class Pool:
    """Processes made by fork, so that torch is imported once."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("fork")
        self._workers: list[tuple[Any, connection.Connection]] = []
        self._serial = 0

    def run(self, request: Request) -> dict[str, Any]:
        if not self._workers:
            self._start()
        self._serial += 1
        chosen = self._workers[: request["world"]]
        for _, pipe in chosen:
            pipe.send((self._serial, request))
        try:
            replies = [self._reply(rank) for rank in range(len(chosen))]
        except Lost as lost:
            self.stop()
            return {"ranks": [], "lost": str(lost)}
        return answer([notes for notes, _ in replies], [error for _, error in replies])

    def stop(self) -> None:
        for process, pipe in self._workers:
            process.kill()
            process.join()
            pipe.close()
        self._workers = []

    def _start(self) -> None:
        port = 0
        for rank in range(RANKS):
            here, there = self._context.Pipe()
            self._workers.append((None, here))
            open_here = [pipe for _, pipe in self._workers]
            process = self._context.Process(target=worker, args=(rank, port, there, open_here), daemon=True)
            process.start()
            there.close()
            self._workers[rank] = (process, here)
            if rank == 0:
                port = self._reply(0)

    def _reply(self, rank: int) -> Any:
        process, pipe = self._workers[rank]
        if not connection.wait([pipe, process.sentinel], LIMIT):
            raise Lost(f"rank {rank} gave no answer in {LIMIT:.0f} s")
        try:
            return pipe.recv()
        except EOFError:
            process.join(1)
            raise Lost(f"rank {rank} died with status {process.exitcode}") from None


def main() -> None:
    # Programs and libraries print to stderr; stdout is for answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    pool = Pool()
    run: Callable[[Request], dict[str, Any]] = ours if sys.argv[1] == "ours" else pool.run
    try:
        for line in sys.stdin:
            out.write(json.dumps(run(json.loads(line))) + "\n")
            out.flush()
    finally:
        pool.stop()


if __name__ == "__main__":
    main()
