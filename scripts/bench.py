"""What allranks costs, against peers measured in the same run. Prints a table and writes it to target/bench.md.

    python scripts/bench.py [--rounds N] [--only WORD]

All figures are medians of interleaved runs; a ratio is the median of the ratios of neighbours, since machines are
shared and noisy. Nothing here is a promise, and no test looks at a time. Exit status 0 whatever the figures say.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "bench_programs"
SMALL, LARGE = 256, 16 << 20  # elements of float32: 1 KiB, 64 MiB
ENV = dict(os.environ, OMP_NUM_THREADS="1")


@dataclass
class Row:
    """One comparison: ours is at most (or, for `at_least`, at least) `limit` times the peer."""

    measure: str
    peer: str
    ours: str
    theirs: str
    ratio: float
    limit: float
    at_least: bool = False

    @property
    def holds(self) -> bool:
        return self.ratio >= self.limit if self.at_least else self.ratio <= self.limit

    def cells(self) -> list[str]:
        sign = ">=" if self.at_least else "<="
        verdict = "yes" if self.holds else "NO"
        return [self.measure, self.ours, self.peer, self.theirs, f"{self.ratio:.2f}", f"{sign} {self.limit:g}", verdict]


def allranks(world: int, program: str, *args: object) -> list[str]:
    """The command that runs a program as all ranks."""
    words = ["-m", "allranks", "run", "--quiet", "-n", str(world), str(PROGRAMS / program), *map(str, args)]
    return [sys.executable, *words]


def torchrun(world: int, program: str, *args: object) -> list[str]:
    """The same on real gloo."""
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)]
    return [sys.executable, *words, str(PROGRAMS / program), *map(str, args)]


def plain(program: str, *args: object) -> list[str]:
    """A program by itself."""
    return [sys.executable, str(PROGRAMS / program), *map(str, args)]


def wall(command: Sequence[str]) -> float:
    """Seconds of a whole process."""
    start = time.perf_counter()
    subprocess.run(command, check=True, env=ENV, capture_output=True)
    return time.perf_counter() - start


def result(command: Sequence[str]) -> float:
    """The seconds that a program measured itself."""
    out = subprocess.run(command, check=True, env=ENV, capture_output=True, text=True).stdout
    return float(next(line for line in out.splitlines() if line.startswith("RESULT")).split()[1])


def peak_memory(command: Sequence[str]) -> float:
    """Peak resident MiB of a whole process."""
    pid = os.posix_spawn(
        command[0],
        list(command),
        ENV,
        file_actions=[(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)],
    )
    _, _, usage = os.wait4(pid, 0)
    unit = 1 if sys.platform == "darwin" else 1024
    return usage.ru_maxrss * unit / 2**20


def human(seconds: float) -> str:
    """With three digits and a unit."""
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if seconds < limit:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def compare(
    measure: str,
    peer: str,
    ours: Callable[[], float],
    theirs: Callable[[], float],
    rounds: int,
    limit: float,
    *,
    at_least: bool = False,
    inverse: bool = False,
) -> Row:
    """Ours, theirs, ours, theirs, ...; `inverse` gives how many times faster ours is."""
    pairs = [(ours(), theirs()) for _ in range(rounds)]
    ratio = statistics.median(t / o if inverse else o / t for o, t in pairs)
    a, b = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Row(measure, peer, human(a), human(b), ratio, limit, at_least)


def rows(rounds: int) -> dict[str, Callable[[], Row]]:
    """Every measure, by a word for `--only`."""
    few = max(1, rounds // 3)
    faster = {"at_least": True, "inverse": True}
    importing = [sys.executable, "-c", "import torch.distributed"]

    def hand_over() -> Row:
        seconds = statistics.median(result(allranks(8, "hand_over.py")) for _ in range(rounds))
        return Row("one hand-over, all state swapped", "15 us", human(seconds), "", seconds / 15e-6, 1.0)

    def memory() -> Row:
        few_ranks, many = (peak_memory(allranks(n, "barrier.py")) for n in (8, 256))
        each = (many - few_ranks) / 248
        return Row("memory of one more rank", "4 MiB", f"{each:.2f} MiB", "", each / 4, 1.0)

    return {
        "start": lambda: compare(
            "run -n 8 barrier, whole process",
            "import torch.distributed",
            lambda: wall(allranks(8, "barrier.py")),
            lambda: wall(importing),
            rounds,
            1.25,
        ),
        "launch": lambda: compare(
            "run -n 8 barrier, whole process",
            "torchrun gloo, 8 processes",
            lambda: wall(allranks(8, "barrier.py")),
            lambda: wall(torchrun(8, "barrier.py")),
            few,
            6,
            **faster,
        ),
        "small-threaded": lambda: compare(
            "1 KiB all_reduce, 8 ranks",
            "threaded process group",
            lambda: result(allranks(8, "all_reduce.py", SMALL, 2000)),
            lambda: result(plain("threaded.py", SMALL, 1000)),
            rounds,
            0.5,
        ),
        "small-gloo": lambda: compare(
            "1 KiB all_reduce, 8 ranks",
            "gloo",
            lambda: result(allranks(8, "all_reduce.py", SMALL, 2000)),
            lambda: result(torchrun(8, "all_reduce.py", SMALL, 200)),
            few,
            60,
            **faster,
        ),
        "hand-over": hand_over,
        "large-copy": lambda: compare(
            "64 MiB all_reduce, 8 ranks",
            "copying the same bytes",
            lambda: result(allranks(8, "all_reduce.py", LARGE, 5)),
            lambda: result(plain("copy_bytes.py", LARGE, 5)),
            rounds,
            0.6,
            **faster,
        ),
        "large-gloo": lambda: compare(
            "64 MiB all_reduce, 8 ranks",
            "gloo",
            lambda: result(allranks(8, "all_reduce.py", LARGE, 5)),
            lambda: result(torchrun(8, "all_reduce.py", LARGE, 5)),
            few,
            4,
            **faster,
        ),
        "large-threaded": lambda: compare(
            "64 MiB all_reduce, 8 ranks",
            "threaded process group",
            lambda: result(allranks(8, "all_reduce.py", LARGE, 5)),
            lambda: result(plain("threaded.py", LARGE, 3)),
            few,
            6,
            **faster,
        ),
        "many": lambda: compare(
            "run -n 256 barrier, whole process",
            "run -n 8",
            lambda: wall(allranks(256, "barrier.py")),
            lambda: wall(allranks(8, "barrier.py")),
            rounds,
            3,
        ),
        "memory": memory,
    }


def table(found: Sequence[Row]) -> str:
    """As Markdown."""
    cells = [["measure", "ours", "peer", "peer's", "ratio", "goal", "holds"], *(row.cells() for row in found)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


def main() -> int:
    """Measures, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", help="measures whose name contains this")
    options = parser.parse_args()
    found = []
    for name, measure in rows(options.rounds).items():
        if options.only is None or options.only in name:
            print(f"measuring {name} ...", file=sys.stderr, flush=True)
            found.append(measure())
    text = table(found)
    if options.only is None or "one-rank" in options.only:
        command = [sys.executable, str(HERE / "bench_one_rank.py")]
        text += "\n\nOne rank, against torch's `fake` backend in the same process:\n\n"
        text += subprocess.run(command, env=ENV, capture_output=True, text=True).stdout
    print(text)
    target = HERE.parent / "target" / "bench.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
