"""Child processes of every kind: the rank's variables and folder, all CPUs, no rank of their own."""

import multiprocessing as mp
import os
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        return torch.tensor([i * i, int(os.environ["RANK"])])


def work(queue):
    queue.put((os.environ["RANK"], __name__))


def main():
    dist.init_process_group("gloo")
    r = dist.get_rank()
    os.chdir(tempfile.mkdtemp())
    dist.barrier()
    code = "import os; print(os.environ['RANK'], os.getcwd(), len(os.sched_getaffinity(0)))"
    text = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split()
    assert text == [str(r), os.getcwd(), str(os.cpu_count())], text
    assert subprocess.check_output(["sh", "-c", "echo $RANK"], text=True).strip() == str(r)
    assert os.popen("echo $RANK").read().strip() == str(r)
    assert os.system(f"test $RANK = {r}") == 0
    piped = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert piped.communicate(b"x" * 200000)[0] == b"x" * 200000
    started = time.time()
    child = subprocess.Popen(["sleep", "0.3"])
    dist.barrier()
    assert child.wait() == 0 and time.time() - started < 5
    for method in ("fork", "spawn"):
        context = mp.get_context(method)
        queue = context.Queue()
        process = context.Process(target=work, args=(queue,))
        process.start()
        got = queue.get()
        assert got == (str(r), "__main__" if method == "fork" else "__mp_main__"), got
        process.join()
        assert process.exitcode == 0
    rows = torch.cat(list(DataLoader(Squares(), batch_size=2, num_workers=2)))
    assert rows[:, 0].tolist() == [i * i for i in range(6)] and set(rows[:, 1].tolist()) == {r}
    pid = os.fork()
    if pid == 0:
        os._exit(7 if os.getpid() < 1 << 22 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    print(f"RESULT rank={r} ok", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
