"""torch's `distributed_test.py`, from the installed wheel, as torch's own CI runs it under gloo.

    BACKEND=gloo WORLD_SIZE=4 pytest --allranks tests/torch_suites/distributed_suite.py

Without `--allranks` every test spawns a process for each rank. The name keeps it out of an ordinary test run.
"""

import os
import tempfile

os.environ.setdefault("BACKEND", "gloo")
os.environ.setdefault("WORLD_SIZE", "4")
os.environ.setdefault("TEMP_DIR", tempfile.gettempdir())
os.environ.setdefault("INIT_METHOD", "env://")

from torch.testing._internal.distributed import distributed_test as suite


class TestDistBackendWithSpawn(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()
