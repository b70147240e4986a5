"""Measure what gloo refuses, written as TSV to stdout.

    python tests/oracle/measure_rules.py > crates/numerics/data/rules-gloo.tsv

Two real gloo processes on loopback run every operation once per reduce op and dtype. What a rank gets is `ok`, or the
exception type and the first line of its message; if the ranks differ, what each gets, joined by ' | '. A row names an
operation, a reduce op ('-' for none), what came out, and all dtypes for which it did. A case after an error uses a
fresh group, because a refused operation may leave a broken one behind. The first line names the torch version.
"""

import functools
import os
import sys
import tempfile
import warnings
from datetime import timedelta

warnings.filterwarnings("ignore")
import torch
import torch.distributed as dist

N = 2
TIMEOUT = timedelta(seconds=4)
DTYPES = """float64 float32 float16 bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu
complex128 complex64 complex32 int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool""".split()
OPS = "sum avg product min max band bor bxor premul_sum".split()


def reduce_op(name):
    if name == "premul_sum":
        return dist._make_nccl_premul_sum(2.0)
    return getattr(dist.ReduceOp, name.upper())


def ones(dtype, shape=(4,)):
    dt = getattr(torch, dtype)
    return torch.full((*shape, dt.itemsize), 1, dtype=torch.uint8).view(dt).reshape(shape)


def sparse(dtype):
    return torch.sparse_coo_tensor(torch.tensor([[0, 2]]), ones(dtype, (2,)), (4,))


def coalesced_tensor(rank, dt, op, g):
    with dist._coalescing_manager(group=g, async_ops=True) as cm:
        for _ in range(2):
            dist.reduce_scatter_tensor(ones(dt, (2,)), ones(dt), op=op, group=g)
    cm.wait()


REDUCING = {
    "all_reduce": lambda r, dt, op, g: dist.all_reduce(ones(dt), op=op, group=g),
    "all_reduce_coalesced": lambda r, dt, op, g: dist.all_reduce_coalesced([ones(dt), ones(dt)], op=op, group=g),
    "all_reduce_sparse": lambda r, dt, op, g: dist.all_reduce(sparse(dt), op=op, group=g),
    "reduce": lambda r, dt, op, g: dist.reduce(ones(dt), 0, op=op, group=g),
    "reduce_scatter": lambda r, dt, op, g: dist.reduce_scatter(ones(dt), [ones(dt)] * N, op=op, group=g),
    "reduce_scatter_tensor": lambda r, dt, op, g: dist.reduce_scatter_tensor(ones(dt, (2,)), ones(dt), op=op, group=g),
    "reduce_scatter_coalesced": coalesced_tensor,
}
MOVING = {
    "broadcast": lambda r, dt, g: dist.broadcast(ones(dt), 0, group=g),
    "all_gather": lambda r, dt, g: dist.all_gather([ones(dt) for _ in range(N)], ones(dt), group=g),
    "all_gather_into_tensor": lambda r, dt, g: dist.all_gather_into_tensor(ones(dt, (4 * N,)), ones(dt), group=g),
    "all_gather_coalesced": lambda r, dt, g: dist.all_gather_coalesced(
        [[ones(dt), ones(dt)] for _ in range(N)], [ones(dt), ones(dt)], group=g
    ),
    "gather": lambda r, dt, g: dist.gather(ones(dt), [ones(dt) for _ in range(N)] if r == 0 else None, 0, group=g),
    "scatter": lambda r, dt, g: dist.scatter(ones(dt), [ones(dt) for _ in range(N)] if r == 0 else None, 0, group=g),
    "all_to_all": lambda r, dt, g: dist.all_to_all([ones(dt) for _ in range(N)], [ones(dt) for _ in range(N)], group=g),
    "all_to_all_single": lambda r, dt, g: dist.all_to_all_single(ones(dt), ones(dt), group=g),
    "send": lambda r, dt, g: dist.send(ones(dt), 1, group=g) if r == 0 else dist.recv(ones(dt), 0, group=g),
}


def attempt(f):
    try:
        f()
        return "ok"
    except Exception as e:
        text = str(e).splitlines()[0] if str(e) else ""
        return f"{type(e).__name__}: {text}"


def worker(rank, path):
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=N)
    store = dist.distributed_c10d._get_default_store()
    group = dist.new_group(timeout=TIMEOUT)
    cases = [(k, o, d) for k in REDUCING for o in OPS for d in DTYPES] + [(k, "-", d) for k in MOVING for d in DTYPES]
    if rank == 0:
        print(f"# torch {torch.__version__}, gloo, {N} ranks")
        print("operation\treduce_op\toutcome\tdtypes")
    table = {}
    for serial, (kind, op, dtype) in enumerate(cases):
        if op == "-":
            mine = attempt(functools.partial(MOVING[kind], rank, dtype, group))
        else:
            mine = attempt(functools.partial(REDUCING[kind], rank, dtype, reduce_op(op), group))
        store.set(f"{serial}/{rank}", mine)
        got = [store.get(f"{serial}/{r}").decode() for r in range(N)]
        outcome = got[0] if len(set(got)) == 1 else " | ".join(got)
        table.setdefault((kind, op, outcome), []).append(dtype)
        if any(g != "ok" for g in got):
            dist.distributed_c10d._world.pg_coalesce_state.clear()
            group = dist.new_group(timeout=TIMEOUT)
    if rank == 0:
        for (kind, op, outcome), dtypes in table.items():
            sys.stdout.write("\t".join([kind, op, outcome, " ".join(dtypes)]) + "\n")
    store.set(f"end/{rank}", "1")
    [store.get(f"end/{r}") for r in range(N)]
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(N):
            pid = os.fork()
            if pid == 0:
                worker(rank, os.path.join(folder, "store"))
            children.append(pid)
        sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) for p in children))
