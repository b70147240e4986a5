"""Try every operation of c10d with odd and ordinary arguments; one line per rank and attempt, to compare two runs.

    torchrun --standalone --nproc-per-node 3 tests/programs/arguments.py [SECTION ...] [--texts]

A line is `rank R: NAME value` or `rank R: NAME raised ExceptionType`; `--texts` adds the first line of its text.
All ranks raise alike or none does, so real gloo neither hangs nor dies. Left out is what gloo leaves to chance: memory
that it does not own, buffers that it does not define.
"""

import sys
import warnings
from datetime import timedelta

warnings.filterwarnings("ignore")
import torch
import torch.distributed as dist
from argument_cases import collectives, functional, groups, layouts, lists, messages, names, objects, works

SECTIONS = [names, collectives, lists, layouts, works, messages, objects, functional, groups]


def show(value):
    """The value as text that does not depend on addresses."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            return f"{value.layout} {show(value.to_dense())}"
        flags = " grad" if value.requires_grad else ""
        flat = value.detach().resolve_conj().resolve_neg().reshape(-1)
        if value.dtype.itemsize == 1 and value.dtype not in (torch.int8, torch.uint8, torch.bool):
            flat = flat.view(torch.uint8)
        if value.dtype == torch.complex32:
            flat = flat.to(torch.complex64)
        numbers = " ".join(f"{v:.6g}" if isinstance(v, float) else str(v) for v in flat.tolist())
        return f"{str(value.dtype)[6:]}{tuple(value.shape)}{flags}[{numbers}]"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}({', '.join(map(show, value))})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{show(k)}: {show(v)}" for k, v in value.items()) + "}"
    if value is None or isinstance(value, (str, int, float, bytes, torch.dtype, torch.device, timedelta)):
        return str(value)
    return type(value).__name__


class Tries:
    """Runs attempts and prints what comes of them."""

    def __init__(self, texts):
        self.rank, self.world, self.texts = dist.get_rank(), dist.get_world_size(), texts

    def __call__(self, name, attempt):
        try:
            text = show(attempt())
        except Exception as e:
            dist.distributed_c10d._world.pg_coalesce_state.clear()
            text = f"raised {type(e).__name__}"
            if self.texts:
                text += ": " + (str(e).splitlines() or [""])[0]
        sys.stdout.write(f"rank {self.rank}: {name} {text}\n")
        sys.stdout.flush()


def main():
    wanted = [a for a in sys.argv[1:] if not a.startswith("-")]
    names.before_init(show)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    t = Tries("--texts" in sys.argv)
    for section in SECTIONS:
        name = section.__name__.rpartition(".")[2]
        if not wanted or name in wanted:
            section.run(t)
            dist.barrier()
    dist.destroy_process_group()
    names.after_destroy(t)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
