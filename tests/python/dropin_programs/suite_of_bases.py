"""A child of each of torch's test bases, with tests that end in every way; run as processes and in one process."""

import os
import signal
import sys
import unittest

import torch
import torch.distributed as dist
from torch.testing._internal.common_distributed import (
    TEST_SKIPS,
    DistributedTestBase,
    MultiProcContinuousTest,
    MultiProcessTestCase,
    MultiThreadedTestCase,
    spawn_threads_and_init_comms,
)
from torch.testing._internal.common_utils import instantiate_parametrized_tests, parametrize

seen = []


class TestProcesses(MultiProcessTestCase):
    set_by_parent = "no"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.set_by_parent = "yes"

    @property
    def world_size(self):
        return 2

    def setUp(self):
        super().setUp()
        os.environ["FROM_SETUP"] = self._testMethodName
        self._spawn_processes()

    def begin(self):
        store = dist.FileStore(self.file_name, self.world_size)
        dist.init_process_group("gloo", rank=self.rank, world_size=self.world_size, store=store)

    def sum(self):
        x = torch.tensor([self.rank + 1.0])
        dist.all_reduce(x)
        return x.item()

    def test_sum(self):
        self.begin()
        self.assertEqual(self.sum(), 3.0)

    def test_what_a_process_sees(self):
        seen.append(self.rank)
        self.assertEqual(seen, [self.rank])  # A module of its own.
        self.assertEqual(self.set_by_parent, "no")
        self.assertEqual(os.environ["FROM_SETUP"], "test_what_a_process_sees")
        self.assertNotIn("RANK", os.environ)

    def test_one_fails(self):
        self.begin()
        if self.rank == 1:
            self.assertEqual(1, 2, "rank one is wrong")
        self.sum()

    def test_all_fail(self):
        raise ValueError(f"rank {self.rank} raises")

    def test_skips(self):
        sys.exit(TEST_SKIPS["small_worldsize"].exit_code)

    def test_unittest_skip(self):
        raise unittest.SkipTest("not today")

    def test_odd_status(self):
        sys.exit(3)

    @unittest.skip("never")
    def test_never(self):
        raise AssertionError

    def test_kills_itself(self):
        if self.rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def test_leaves_at_once(self):
        os._exit(0)

    def test_sub(self):
        for number in (1, 2):
            with self.subTest(number=number):
                self.assertLess(number, 3)


class TestBase(DistributedTestBase):
    world_size = 2

    @parametrize("count", [1, 5])
    def test_gather(self, count):
        self.create_pg("cpu")
        outs = [torch.zeros(count) for _ in range(2)]
        dist.all_gather(outs, torch.full((count,), float(self.rank)))
        self.assertEqual([o.sum().item() for o in outs], [0.0, count])


instantiate_parametrized_tests(TestBase)


class TestContinuous(MultiProcContinuousTest):
    world_size = 2
    count = 0

    @classmethod
    def backend_str(cls):
        return "gloo"

    def test_a_sum(self):
        TestContinuous.count += 1
        x = torch.ones(2)
        dist.all_reduce(x)
        self.assertEqual(x.tolist(), [2.0, 2.0])

    def test_b_keeps_state(self):
        self.assertEqual(TestContinuous.count, 1)

    def test_c_skips(self):
        self.skipTest("not here")

    def test_d_fails(self):
        self.assertEqual(self.rank, 0, "rank one is wrong")

    def test_e_is_skipped_then(self):
        raise AssertionError


class TestThreads(MultiThreadedTestCase):
    @property
    def world_size(self):
        return 2

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.set_by_parent = "yes"

    def setUp(self):
        super().setUp()
        self._spawn_threads()

    def test_sum(self):
        x = torch.tensor([self.rank + 1.0])
        dist.all_reduce(x)
        self.assertEqual(x.item(), 3.0)
        self.assertEqual(self.set_by_parent, "yes")
        self.assertEqual(dist.get_backend(), "threaded")

    def test_fails(self):
        if self.rank == 1:
            raise ValueError("rank one is wrong")
        dist.barrier()

    def test_skips(self):
        self.skipTest("not here")


class TestDecorated(unittest.TestCase):
    @spawn_threads_and_init_comms(world_size=2)
    def test_sum(self):
        x = torch.ones(1)
        dist.all_reduce(x)
        self.assertEqual(x.item(), 2.0)
