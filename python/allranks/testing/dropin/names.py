"""Every private name of torch's test bases that the drop-in relies on, and which base has them."""

from __future__ import annotations

from typing import Any

#: The module of the bases.
MODULE = "torch.testing._internal.common_distributed"
PROCESSES = "MultiProcessTestCase"
CONTINUOUS = "MultiProcContinuousTest"
THREADS = "MultiThreadedTestCase"
BASES = (PROCESSES, CONTINUOUS, THREADS)
#: Suites that lie in torch and keep state of their own at module level: each rank gets its own copy.
SUITES = "torch.testing._internal.distributed."
#: Bases whose ranks talk by other means than process groups.
FOREIGN = ("torch.testing._internal.distributed.rpc",)
#: Exit status of a rank whose test failed.
TEST_ERROR = "TEST_ERROR_EXIT_CODE"


def is_base(cls: Any) -> bool:
    """Whether a class is a child of one of the bases."""
    return isinstance(cls, type) and any(c.__module__ == MODULE and c.__name__ in BASES for c in cls.__mro__)
