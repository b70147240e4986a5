"""`init_process_group("allranks", rank=3, world_size=64)` in a plain program, without a launcher."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program of its own, which begins by making the name known."""
    head = "from allranks import one_rank\none_rank.register_plain()\nimport torch, torch.distributed as dist\n"
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    return subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(program)],
        env={**env, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_rank_and_world_size_suffice() -> None:
    done = run("""
        empty = torch.empty
        dist.init_process_group("allranks", rank=3, world_size=64)
        t = torch.ones(2)
        dist.all_reduce(t)
        print(dist.get_rank(), dist.get_world_size(), dist.get_backend(), t.tolist())
        store = dist.distributed_c10d._get_default_store()
        store.set("k", "v")
        print(store.get("k"), dist.all_reduce(t, async_op=True).is_completed())
        dist.destroy_process_group()
        dist.init_process_group("allranks", rank=0, world_size=2)
        dist.all_reduce(t)
        print(t.tolist(), one_rank.summary())
        one_rank.uninstall()
        assert torch.empty is empty
    """)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "3 64 allranks [64.0, 64.0]"
    assert lines[1] == "b'v' True"
    assert lines[2].startswith("[8192.0, 8192.0]")


def test_rank_and_world_size_from_the_environment() -> None:
    done = run('dist.init_process_group("allranks"); print(dist.get_rank())', RANK="5", WORLD_SIZE="8")
    assert done.stdout == "5\n", done.stderr


def test_what_is_missing_is_named() -> None:
    done = run('dist.init_process_group("allranks", rank=1)')
    assert "world_size" in done.stderr
    done = run('dist.init_process_group("allranks", rank=8, world_size=8)')
    assert "rank 8 is not in a world of 8" in done.stderr


def test_other_backends_are_torchs_own() -> None:
    done = run("""
        from torch.distributed import distributed_c10d as c10d
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        backend = c10d._get_default_group()._get_backend(torch.device("cpu"))
        print(type(backend).__name__)
        out = [None]
        dist.all_gather_object(out, 3)
        print(out)
    """)
    assert done.stdout == "ProcessGroupGloo\n[3]\n", done.stderr


def test_an_imported_name_works_too() -> None:
    done = run("""
        from torch.distributed import init_process_group
        init_process_group("allranks", rank=3, world_size=64)
        print(dist.get_rank())
    """)
    assert done.stdout == "3\n", done.stderr
