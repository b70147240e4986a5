"""What importing an installed package sets in a `threading.local` is there for every rank, on its main thread.

`allranks run thread_locals.py`: a rank imports the package. `python thread_locals.py`: it is there before the run.
"""

import sys
import threading

import allranks
import torch.distributed as dist


def work() -> str:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        import installed
    dist.barrier()
    import installed

    installed.state.depth += rank + 1
    installed.state.stack.append(rank)
    dist.barrier()
    assert installed.state.depth == rank + 1
    assert installed.state.stack == [rank]
    assert installed.Base.state.precision == 0.5

    elsewhere: list[bool] = []
    thread = threading.Thread(target=lambda: elsewhere.append(hasattr(installed.state, "depth")))
    thread.start()
    thread.join()
    assert elsewhere == [False], "as in any process, only the importing thread has them"
    return f"RESULT rank={rank} ok"


if "allranks._cli" in sys.modules:
    print(work())
else:
    import installed

    print("\n".join(allranks.run(work, world_size=3)))
    assert (installed.state.depth, installed.state.stack) == (0, [])
