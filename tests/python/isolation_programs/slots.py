"""Every kind of state that is private to a rank: set it differently, hand over, read it back."""

import atexit
import gc
import logging
import os
import random
import signal
import sys
import tempfile
import threading
import time
import warnings

import numpy as np
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
r, n = dist.get_rank(), dist.get_world_size()
bad = []


def check(name, put, get, want=None):
    put()
    mine = get()
    dist.barrier()
    time.sleep(0)
    dist.barrier()
    now = get()
    wanted = mine if want is None else want
    if now != wanted:
        bad.append((name, wanted, now))
    dist.barrier()


class Sub(logging.Handler):
    pass


def draw(seed, rand):
    seed(r)
    first = rand()
    seed(r)
    return first


expected = draw(random.seed, random.random)
check("random", lambda: random.seed(r), lambda: None)
assert random.random() == expected
random.seed(r)
random.gauss(0, 1)
dist.barrier()
g = random.gauss(0, 1)
random.seed(r)
random.gauss(0, 1)
assert random.gauss(0, 1) == g, "gauss_next"
expected = draw(np.random.seed, np.random.rand)
check("numpy", lambda: np.random.seed(r), lambda: None)
assert np.random.rand() == expected
np.random.seed(r)
np.random.standard_normal()
dist.barrier()
g = np.random.standard_normal()
np.random.seed(r)
np.random.standard_normal()
assert np.random.standard_normal() == g, "numpy gauss"
expected = draw(torch.manual_seed, lambda: torch.rand(1).item())
check("torch rng", lambda: torch.manual_seed(r), lambda: None)
assert torch.rand(1).item() == expected

check("default dtype", lambda: torch.set_default_dtype(torch.float64 if r else torch.float32), torch.get_default_dtype)
check("deterministic", lambda: torch.use_deterministic_algorithms(r == 0), torch.are_deterministic_algorithms_enabled)
check(
    "matmul", lambda: torch.set_float32_matmul_precision("high" if r else "highest"), torch.get_float32_matmul_precision
)
check("anomaly", lambda: torch.autograd.set_detect_anomaly(r == 0), torch.is_anomaly_enabled)
check("printoptions", lambda: torch.set_printoptions(precision=2 + r), lambda: str(torch.tensor(1 / 3)))
check("cudnn flag", lambda: setattr(torch.backends.cudnn, "benchmark", r == 1), lambda: torch.backends.cudnn.benchmark)
check("mkldnn flag", lambda: torch.backends.mkldnn.set_flags(r == 1), lambda: torch._C._get_mkldnn_enabled())
check("default device", lambda: torch.set_default_device("meta" if r else "cpu"), lambda: torch.empty(0).device.type)
torch.set_default_device("cpu")
check("grad mode", lambda: torch.set_grad_enabled(r == 0), torch.is_grad_enabled)
torch.set_grad_enabled(True)
check("num threads", lambda: torch.set_num_threads(1 + r), torch.get_num_threads)
check("autograd threads", lambda: None, torch._C._is_multithreading_enabled, False)
check("environ", lambda: os.environ.update(X=str(r)), lambda: os.environ["X"])
check("environ pop", lambda: os.environ.pop("X") if r else None, lambda: "X" in os.environ, r == 0)
check("cwd", lambda: os.chdir(tempfile.mkdtemp()), os.getcwd)
check("argv", lambda: sys.argv.append(str(r)), lambda: sys.argv[-1], str(r))
check("path", lambda: sys.path.append(str(r)), lambda: sys.path[-1], str(r))
hook = lambda *a: None  # noqa: E731
for name in ("excepthook", "displayhook"):
    check(name, lambda name=name: setattr(sys, name, hook), lambda name=name: getattr(sys, name) is hook, True)
sys.excepthook = sys.__excepthook__
check(
    "threading.excepthook", lambda: setattr(threading, "excepthook", hook), lambda: threading.excepthook is hook, True
)
check("warnings", lambda: warnings.simplefilter("error" if r else "ignore"), lambda: warnings.filters[0][0])
check("showwarning", lambda: setattr(warnings, "showwarning", hook), lambda: warnings.showwarning is hook, True)
check("gc", lambda: gc.disable() if r == 0 else gc.enable(), gc.isenabled)
check("recursion", lambda: sys.setrecursionlimit(2000 + r), sys.getrecursionlimit)
check("root level", lambda: logging.basicConfig(level=10 * (r + 1), force=True), lambda: logging.getLogger().level)
check("enabled for", lambda: None, lambda: logging.getLogger("other").isEnabledFor(10), r == 0)
check("named logger", lambda: logging.getLogger("x").addHandler(Sub()), lambda: len(logging.getLogger("x").handlers), 1)
check(
    "logger attribute",
    lambda: setattr(logging.getLogger("y"), "propagate", r == 0),
    lambda: logging.getLogger("y").propagate,
)
check("logging.disable", lambda: logging.disable(10 + r), lambda: logging.root.manager.disable)
check("signal", lambda: signal.signal(signal.SIGUSR1, hook), lambda: signal.getsignal(signal.SIGUSR1) is hook, True)
got = []
signal.signal(signal.SIGUSR2, lambda s, f: got.append(s))
os.kill(os.getpid(), signal.SIGUSR2)
check("kill", lambda: None, lambda: got, [signal.SIGUSR2])
check("main thread", lambda: None, lambda: threading.current_thread() is threading.main_thread(), True)
check("threads", lambda: None, threading.active_count, 1)
pids = [None] * n
dist.all_gather_object(pids, os.getpid())
check("pid", lambda: None, lambda: (len(set(pids)), pids[r] == os.getpid()), (n, True))


def new_save(*args):
    return r


torch.save = new_save
check("module attribute", lambda: None, lambda: torch.save(0), r)
torch.nn.Linear.mine = r
check("class attribute", lambda: None, lambda: torch.nn.Linear.mine, r)
setattr(torch.nn.Conv1d, "mine", r)  # noqa: B010
check("setattr", lambda: None, lambda: torch.nn.Conv1d.mine, r)
if r == 0:
    del torch.nn.Linear.mine
check("del", lambda: None, lambda: hasattr(torch.nn.Linear, "mine"), r != 0)
from unittest import mock  # noqa: E402

with mock.patch.object(torch, "load", lambda: r):
    check("mock", lambda: None, lambda: torch.load(), r)
check("mock undone", lambda: None, lambda: torch.load.__module__, "torch.serialization")

from concurrent.futures import ThreadPoolExecutor  # noqa: E402

with ThreadPoolExecutor(2) as pool:
    check(
        "executor",
        lambda: None,
        lambda: list(pool.map(lambda _: (time.sleep(0.001), dist.get_rank())[1], range(3))),
        [r] * 3,
    )
subs = [dist.new_group([k]) for k in range(n)]
seen = []
helper = threading.Thread(
    target=lambda: seen.append(dist.distributed_c10d._resolve_process_group(subs[r].group_name) is not None)
)
helper.start()
helper.join()
check("groups in a thread", lambda: None, lambda: seen, [True])
import torch.distributed.nn.functional as dnf  # noqa: E402

check("group bound at import", lambda: None, lambda: dnf.broadcast.__defaults__, (None,))
atexit.register(lambda: print(f"RESULT rank={r} atexit", flush=True))
print(f"RESULT rank={r} {bad or 'ok'}", flush=True)
dist.destroy_process_group()
