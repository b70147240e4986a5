"""The virtual clock: hours pass at once, and everything that tells the time agrees.

Nothing here waits; what would really sleep runs into pytest's own time-out.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import pathlib
import queue
import sched
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import date, datetime
from time import monotonic as bound_monotonic
from time import sleep as bound_sleep
from time import time as bound_time
from typing import Any

import allranks
import pytest
import torch
import torch.distributed as dist
from run_support import run

HOUR = 3600


def ranks(fn: Callable[[], Any], world: int = 2, clock: str = "virtual", **options: Any) -> list[Any]:
    return allranks.run(fn, world, clock=clock, **options)


CLOCKS: dict[str, Callable[[], float]] = {
    "time": lambda: time.time(),
    "monotonic": lambda: time.monotonic(),
    "perf_counter": lambda: time.perf_counter(),
    "time_ns": lambda: time.time_ns() / 1e9,
    "monotonic_ns": lambda: time.monotonic_ns() / 1e9,
    "perf_counter_ns": lambda: time.perf_counter_ns() / 1e9,
    "from time import time": lambda: bound_time(),
    "from time import monotonic": lambda: bound_monotonic(),
    "clock_gettime": lambda: time.clock_gettime(time.CLOCK_MONOTONIC),
    "clock_gettime_ns": lambda: time.clock_gettime_ns(time.CLOCK_REALTIME) / 1e9,
    "localtime": lambda: time.mktime(time.localtime()),
    "ctime": lambda: time.mktime(time.strptime(time.ctime())),
    "strftime": lambda: time.mktime(time.strptime(time.strftime("%Y %j %H %M %S"), "%Y %j %H %M %S")),
    "datetime.today": lambda: datetime.today().timestamp(),
}


@pytest.mark.oldest
def test_all_clocks_agree() -> None:
    def body() -> dict[str, float]:
        before = {name: read() for name, read in CLOCKS.items()}
        time.sleep(100 * HOUR)
        return {name: read() - before[name] for name, read in CLOCKS.items()}

    real = {name: read() for name, read in CLOCKS.items()}
    for passed in ranks(body):
        assert {name: seconds // HOUR for name, seconds in passed.items()} == dict.fromkeys(CLOCKS, 100)
    for name, read in CLOCKS.items():
        assert read() - real[name] < HOUR, f"{name} is itself again after the run"


def test_all_ranks_have_the_same_time() -> None:
    def body() -> float:
        if dist.is_initialized():
            raise AssertionError
        time.sleep(HOUR * (int(environ_rank()) + 1))
        return time.time()

    assert [round((t - time.time()) / HOUR) for t in ranks(body, 3)] == [1, 2, 3]


def environ_rank() -> str:
    import os

    return os.environ["RANK"]


def test_the_process_has_its_own_time() -> None:
    seen: list[float] = []

    def body() -> None:
        time.sleep(HOUR)
        child = subprocess.run(
            [sys.executable, "-c", "import time; print(time.time())"], capture_output=True, check=True
        )
        seen.append(time.time() - float(child.stdout))

    ranks(body, 1)
    assert round(seen[0] / HOUR) == 1


def no_answer(act: Callable[[], object], kind: type[BaseException]) -> None:
    with pytest.raises(kind):
        act()


def in_thread(act: Callable[[], object]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def locked() -> None:
    lock = threading.Lock()
    lock.acquire()
    assert not lock.acquire(timeout=HOUR)


def condition() -> None:
    condition = threading.Condition()
    with condition:
        assert not condition.wait_for(lambda: False, timeout=HOUR)


def executor() -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        future = pool.submit(time.sleep, HOUR)
        no_answer(lambda: future.result(timeout=10), concurrent.futures.TimeoutError)


def alarm() -> None:
    rung: list[float] = []
    signal.signal(signal.SIGALRM, lambda *_: rung.append(time.monotonic()))
    begin = time.monotonic()
    signal.alarm(HOUR)
    time.sleep(2 * HOUR)
    assert HOUR <= rung[0] - begin < 2 * HOUR


def timer() -> None:
    rung: list[int] = []
    timer = threading.Timer(HOUR, rung.append, (1,))
    timer.start()
    timer.join()
    assert rung == [1]


def scheduler(*functions: Any) -> None:
    order: list[str] = []
    plan = sched.scheduler(*functions)
    plan.enter(HOUR, 1, order.append, ("late",))
    plan.enter(10, 1, order.append, ("early",))
    plan.run()
    assert order == ["early", "late"]


async def wait_for() -> None:
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), HOUR)


async def in_executor() -> None:
    await asyncio.gather(asyncio.get_running_loop().run_in_executor(None, time.sleep, HOUR), asyncio.sleep(10))


def barrier() -> None:
    no_answer(lambda: threading.Barrier(2).wait(timeout=HOUR), threading.BrokenBarrierError)


WAITS: dict[str, Callable[[], object]] = {
    "sleep": lambda: time.sleep(HOUR),
    "from time import sleep": lambda: bound_sleep(HOUR),
    "Queue": lambda: no_answer(lambda: queue.Queue[int]().get(timeout=HOUR), queue.Empty),
    "SimpleQueue": lambda: no_answer(lambda: queue.SimpleQueue[int]().get(timeout=HOUR), queue.Empty),
    "Event": lambda: threading.Event().wait(HOUR),
    "Lock": locked,
    "Condition": condition,
    "Semaphore": lambda: threading.Semaphore(0).acquire(timeout=HOUR),
    "Barrier": barrier,
    "Timer": timer,
    "thread": lambda: in_thread(lambda: time.sleep(HOUR)),
    "select": lambda: select.select([], [], [], HOUR),
    "futures": executor,
    "sched": scheduler,
    "sched with functions": lambda: scheduler(time.time, time.sleep),
    "asyncio.sleep": lambda: asyncio.run(asyncio.sleep(HOUR)),
    "asyncio.wait_for": lambda: asyncio.run(wait_for()),
    "asyncio, executor": lambda: asyncio.run(in_executor()),
    "alarm": alarm,
}


@pytest.mark.parametrize("name", WAITS)
def test_what_waits_jumps(name: str) -> None:
    def body() -> float:
        begin = time.monotonic()
        WAITS[name]()
        return time.monotonic() - begin

    assert [seconds // HOUR for seconds in ranks(body)] in ([1, 1], [2, 2])


def test_a_loop_that_waits_for_a_time_ends() -> None:
    def body() -> bool:
        end = time.time() + 0.05
        while time.time() < end:
            pass
        return True

    assert ranks(body) == [True, True]


def test_a_child_gets_real_time() -> None:
    """A process outside does not run faster: no wait for it is over before it had its time."""

    def body() -> tuple[int, bytes]:
        nap = [sys.executable, "-c", "import time; time.sleep(0.2); print('done')"]
        status = subprocess.Popen(nap, stdout=subprocess.DEVNULL).wait(timeout=60)
        out = subprocess.run(nap, capture_output=True, timeout=60).stdout
        for_ever = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        no_answer(lambda: for_ever.wait(timeout=0.05), subprocess.TimeoutExpired)
        for_ever.kill()
        return status, out + str(for_ever.wait(timeout=60)).encode()

    assert ranks(body) == [(0, b"done\n-9")] * 2


def test_ranks_sleep_while_another_waits_for_a_child() -> None:
    """They share the time that passes: nobody waits for a child that waits for them."""

    def body(folder: pathlib.Path) -> str:
        if environ_rank() == "0":
            code = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)"
            return str(subprocess.run([sys.executable, "-c", code, str(folder / "go")], timeout=60).returncode)
        time.sleep(0.1)
        (folder / "go").touch()
        return ""

    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        assert ranks(lambda: body(pathlib.Path(folder))) == ["0", ""]


@pytest.mark.parametrize("clock", ["real", "virtual"])
def test_polling_keeps_nobody_from_waking(clock: str) -> None:
    def body() -> str:
        dist.init_process_group("gloo")
        store = dist.distributed_c10d._get_default_store()
        if dist.get_rank() == 0:
            while not store.check(["key"]):
                pass
            work = dist.all_reduce(torch.ones(1), async_op=True)
            while not work.is_completed():
                pass
            return "polled"
        time.sleep(0.05)
        store.set("key", "value")
        time.sleep(0.05)
        dist.all_reduce(torch.ones(1))
        return "slept"

    assert ranks(body, clock=clock) == ["polled", "slept"]


def test_the_order_is_that_of_virtual_time() -> None:
    order: list[tuple[str, int]] = []

    def body() -> None:
        rank = environ_rank()
        for step, nap in enumerate({"0": (50, 1, 1), "1": (20, 40), "2": (51.5,)}[rank]):
            time.sleep(nap)
            order.append((rank, step))

    ranks(body, 3)
    assert order == [("1", 0), ("0", 0), ("0", 1), ("2", 0), ("0", 2), ("1", 1)]


def test_dates() -> None:
    """`date.today()` asks `time.time()`; `datetime.now()` asks the system, as the guide says."""

    def body() -> tuple[bool, bool]:
        now, today = datetime.now(), date.today()
        time.sleep(48 * HOUR)
        return (date.today() - today).days >= 2, (datetime.now() - now).days >= 2

    assert ranks(body, 1) == [(True, False)]


def test_unknown_clock() -> None:
    with pytest.raises(ValueError, match='unknown clock "fast"'):
        ranks(lambda: None, clock="fast")


@pytest.mark.oldest
def test_on_the_command_line(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from time import sleep, time\n"
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "begin = time()\n"
        "sleep(86400 * (dist.get_rank() + 1))\n"
        "dist.monitored_barrier(timeout=__import__('datetime').timedelta(days=3))\n"
        "print(f'rank {dist.get_rank()}: {(time() - begin) // 86400:g} days')\n"
    )
    done = run(program, 2, tmp_path, "--clock", "virtual")
    assert sorted(done.out.splitlines()) == ["rank 0: 2 days", "rank 1: 2 days"], done.err
