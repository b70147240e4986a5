"""`allranks.test`: for unittest and plain functions."""

from __future__ import annotations

import unittest

import allranks
import pytest
import torch
import torch.distributed as dist
from plugin_support import run

pytest_plugins = ["pytester"]


def _total(x: float) -> float:
    t = torch.tensor([x])
    dist.all_reduce(t)
    return t.item()


def test_a_plain_function() -> None:
    seen = []

    @allranks.test(world_size=3)
    def function(a: int, rank: int, *, b: int = 0, world_size: int) -> None:
        """Its text."""
        assert _total(rank) == 3 and world_size == 3
        seen.append((a, b, rank))

    assert function.__doc__ == "Its text." and function.__name__ == "function"
    assert function(1, b=2) is None
    assert sorted(seen) == [(1, 2, rank) for rank in range(3)] and not dist.is_initialized()


def test_errors_come_out_with_a_note() -> None:
    @allranks.test([2, 3])
    def function(rank: int, world_size: int) -> None:
        if world_size == 3 and rank == 1:
            raise KeyError("one")
        dist.barrier()

    with pytest.raises(KeyError, match="one") as caught:
        function()
    text = "\n".join(getattr(caught.value, "__notes__", []))
    assert "allranks, world size 3:\nrank 1 failed at" in text and "ranks 0, 2 stood at" in text
    assert "the same again: world_size=3, schedule='round-robin', seed=0" in text

    @allranks.test(2, schedules=2)
    def deadlock(rank: int) -> None:
        dist.recv(torch.ones(1), 1 - rank)

    with pytest.raises(allranks.RankFailed, match=r"error\[deadlock-cycle\]"):
        deadlock()

    @allranks.test(1000, rank=999)
    def alone(rank: int) -> None:
        assert rank == dist.get_rank() == 999
        raise ValueError("alone")

    with pytest.raises(ValueError, match="alone") as lonely:
        alone()
    assert "run as rank 999 alone of 1000" in getattr(lonely.value, "__notes__", [""])[0] and not dist.is_initialized()


def test_wrong_use_is_told_at_once() -> None:
    with pytest.raises(ValueError, match="no option 'sed'"):
        allranks.test(2, sed=3)
    with pytest.raises(TypeError, match="decorates functions and methods"):
        allranks.test(2)(unittest.TestCase)

    async def coroutine() -> None: ...

    with pytest.raises(TypeError, match="is async"):
        allranks.test(2)(coroutine)


class _Cases(unittest.TestCase):
    __test__ = False  # Not for pytest: some are to fail.

    def setUp(self) -> None:
        self.outside = not dist.is_initialized()

    @allranks.test(world_size=2)
    def test_passes(self, rank: int, world_size: int) -> None:
        self.assertTrue(self.outside)
        self.assertEqual(_total(rank), 1)

    @allranks.test(world_size=2)
    def test_skips(self) -> None:
        self.skipTest("no")

    @allranks.test(world_size=2)
    def test_fails(self, rank: int) -> None:
        self.assertEqual(rank, 0)

    @allranks.test(world_size=[2, 3, 4])
    def test_sizes(self, rank: int, world_size: int) -> None:
        self.assertFalse(world_size > 2 and rank == 1)

    @unittest.expectedFailure
    @allranks.test(world_size=2)
    def test_expected(self) -> None:
        self.fail()


def test_under_unittest() -> None:
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(_Cases).run(result)
    assert result.testsRun == 5 and len(result.skipped) == 1 and len(result.expectedFailures) == 1 and not result.errors
    failures = {str(case): text for case, text in result.failures}
    assert len(failures) == 3
    assert sorted(name.split()[0] for name in failures) == ["test_fails", "test_sizes", "test_sizes"]
    assert any("(world_size=3)" in name for name in failures) and any("(world_size=4)" in name for name in failures)
    assert "AssertionError: 1 != 0" in next(text for name, text in failures.items() if name.startswith("test_fails"))


def test_under_pytest(pytester: pytest.Pytester) -> None:
    session = run(
        pytester,
        """
        from allranks import test

        @pytest.fixture
        def once():
            assert not dist.is_initialized()
            return [1]

        @allranks.test(world_size=3)
        def test_plain(rank, once, world_size):
            once.append(rank)
            dist.barrier()
            assert len(once) == 4

        @pytest.mark.parametrize("x", [1, 2])
        @allranks.test(world_size=3)
        def test_fails(rank, x):
            assert rank < x
        """,
    )
    assert session.outcomes == {"passed": 1, "failed": 2}, session.text
    assert "rank 2 failed at test_it.py" in session.text and "E       allranks, world size 3:" in session.text
