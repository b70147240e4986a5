"""Write hashes of what real gloo computes, as TSV to stdout.

    OMP_NUM_THREADS=1 python tests/oracle/make_golden.py > crates/numerics/data/golden.tsv

One row per (ranks, kind, dtype, op, data): a hash over all the row's sizes and over the outputs of the ranks that have
one. `crates/numerics/tests/golden.rs` makes the same inputs, reduces them and compares. Inputs are counters put
through the mixer of splitmix64, so that numpy and Rust agree without a file of inputs:

* `bits`: any bit pattern, NaN and infinities among them;
* `finite`: numbers of very different magnitude (2^-63 to 1; float16 2^-24 to 2) and both signs;
* `big`: as `finite`, but sizes above the segment limit of gloo's ring, SUM only.
"""

import os
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
import numpy as np
import torch
import torch.distributed as dist

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
U64 = np.uint64
np.seterr(over="ignore")

# dtype: (unsigned type of a real part, real parts, bits to keep and bits to set for `finite`)
FORMATS = {
    "float64": (np.uint64, 1, 0x83FFFFFFFFFFFFFF, 960 << 52),
    "float32": (np.uint32, 1, 0x9FFFFFFF, 64 << 23),
    "float16": (np.uint16, 1, 0xBFFF, 0),
    "bfloat16": (np.uint16, 1, 0x9FFF, 64 << 7),
    "complex128": (np.uint64, 2, 0x83FFFFFFFFFFFFFF, 960 << 52),
    "complex64": (np.uint32, 2, 0x9FFFFFFF, 64 << 23),
    "complex32": (np.uint16, 2, 0xBFFF, 0),
    "int64": (np.uint64, 1, None, None),
    "int32": (np.uint32, 1, None, None),
    "int8": (np.uint8, 1, None, None),
    "uint8": (np.uint8, 1, None, None),
    "bool": (np.uint8, 1, 1, 0),
}
SIGNED = {np.uint8: np.uint8, np.uint16: np.int16, np.uint32: np.int32, np.uint64: np.int64}
KINDS = (
    "all_reduce all_reduce_coalesced reduce_first reduce_last reduce_scatter reduce_scatter_tensor "
    "reduce_scatter_coalesced"
).split()
WORLDS = {1: KINDS, 2: KINDS, 3: KINDS, 4: KINDS[:4], 5: KINDS, 8: KINDS, 13: KINDS[:4], 16: KINDS[:4]}


def mix(z):
    z = (z ^ (z >> U64(30))) * U64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> U64(27))) * U64(0x94D049BB133111EB)
    return z ^ (z >> U64(31))


def counters(seed, n):
    return mix(U64(seed) + (np.arange(n, dtype=np.uint64) + U64(1)) * GOLDEN)


def hash_bytes(data):
    raw = np.frombuffer(data, dtype=np.uint8).astype(np.uint64)
    return ((raw + U64(1)) * counters(0, len(raw))).sum(dtype=np.uint64)


def fold(h, value):
    return mix(np.array([h ^ value]))[0]


def make(dtype, data, seed, n):
    unsigned, parts, keep, put = FORMATS[dtype]
    words = counters(seed, n * parts).astype(unsigned)
    if keep is not None and (data != "bits" or dtype == "bool"):
        words = (words & unsigned(keep)) | unsigned(put)
    if n == 0:
        return torch.empty(0, dtype=getattr(torch, dtype))
    return torch.from_numpy(words.view(SIGNED[unsigned])).view(getattr(torch, dtype)).clone()


def raw(tensor):
    return tensor.contiguous().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def ops_of(dtype, kind):
    if dtype.startswith("complex"):
        # AVG of complex numbers divides complex numbers outside of all_reduce: not ours to match, see the module docs.
        return ["sum", "avg"] if kind.startswith("all_reduce") else ["sum"]
    if "float" in dtype:
        return ["sum", "avg", "product", "min", "max"]
    return ["sum", "product", "min", "max", "band", "bor", "bxor"]


def sizes_of(world):
    return sorted({0, 1, 2, 3, world - 1, world, world + 1, 2 * world + 1, 4 * world + 3, 257})


def run(kind, dtype, op, data, rank, world, n):
    """The output of this rank, as bytes; None where it has none."""
    op = getattr(dist.ReduceOp, op.upper())
    seed = rank * 1_000_003 + n * 17

    def t(m, which=0):
        return make(dtype, data, seed + which * 7_919, m)

    if kind == "all_reduce":
        x = t(n)
        dist.all_reduce(x, op=op)
        return raw(x)
    if kind == "all_reduce_coalesced":
        xs = [t(n, 0), t(3, 1), t(n + 1, 2)]
        dist.all_reduce_coalesced(xs, op=op)
        return b"".join(raw(x) for x in xs)
    if kind in ("reduce_first", "reduce_last"):
        root = 0 if kind == "reduce_first" else world - 1
        x = t(n)
        dist.reduce(x, root, op=op)
        return raw(x) if rank == root else None
    if kind == "reduce_scatter":
        out = t(n)
        dist.reduce_scatter(out, list(t(n * world).chunk(world)) if n else [t(0)] * world, op=op)
        return raw(out)
    if kind == "reduce_scatter_tensor":
        out = t(n)
        dist.reduce_scatter_tensor(out, t(n * world), op=op)
        return raw(out)
    outs = [t(n), t(n + 1)]
    with dist._coalescing_manager(async_ops=True) as work:
        dist.reduce_scatter_tensor(outs[0], t(n * world, 0), op=op)
        dist.reduce_scatter_tensor(outs[1], t((n + 1) * world, 1), op=op)
    work.wait()
    return b"".join(raw(x) for x in outs)


def rows(world):
    for kind in WORLDS[world]:
        for dtype in FORMATS:
            for op in ops_of(dtype, kind):
                for data in ["finite", "bits"] if "float" in dtype or "complex" in dtype else ["bits"]:
                    yield kind, dtype, op, data, sizes_of(world)
    if world in (2, 3):
        for kind in ("all_reduce", "reduce_last", "reduce_scatter", "reduce_scatter_tensor"):
            for dtype in ("float64", "float32", "bfloat16"):
                size = torch.empty((), dtype=getattr(torch, dtype)).element_size()
                whole = [(2 * world * 2**20) // size, (9 * world * 2**20) // (2 * size) + 1]
                yield kind, dtype, "sum", "big", [w // world if kind == "reduce_scatter_tensor" else w for w in whole]


def worker(rank, world, path):
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=world)
    for kind, dtype, op, data, sizes in rows(world):
        h = U64(0)
        for n in sizes:
            out = run(kind, dtype, op, data, rank, world, n)
            mine = torch.tensor([0 if out is None else 1, 0])
            if out is not None:
                mine[1:].view(torch.int64).copy_(torch.from_numpy(hash_bytes(out).reshape(1).view(np.int64)))
            every = [torch.zeros_like(mine) for _ in range(world)]
            dist.all_gather(every, mine)
            for has, value in (e.tolist() for e in every):
                if has:
                    h = fold(h, U64(value % 2**64))
        if rank == 0:
            sys.stdout.write(f"{world}\t{kind}\t{dtype}\t{op}\t{data}\t{int(h):016x}\n")
    sys.stdout.flush()
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    worlds = [int(w) for w in sys.argv[1:]] or list(WORLDS)
    print(f"# torch {torch.__version__}, gloo")
    print("ranks\tkind\tdtype\top\tdata\thash", flush=True)
    for world in worlds:
        with tempfile.TemporaryDirectory() as folder:
            children = []
            for rank in range(world):
                pid = os.fork()
                if pid == 0:
                    worker(rank, world, os.path.join(folder, "store"))
                children.append(pid)
            worst = max(os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) for p in children)
            if worst:
                sys.exit(worst)
