"""The options of the mark, of the command line and of the ini file."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from allranks.testing import marks
from plugin_support import run

pytest_plugins = ["pytester"]


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ("()", "world_size is missing"),
        ("(world_size=0)", "world_size=0: it is a number of ranks, or several"),
        ("(world_size='4')", "world_size='4': it is a number of ranks, or several"),
        ("(world_size=[])", r"world_size=\[\]: it is a number of ranks, or several"),
        ("(world_size=[2, 2])", r"world_size=\[2, 2\]"),
        ("(4, world_size=4)", "world_size is given twice"),
        ("(4, 5)", "only world_size may be given without its name"),
        ("(4, faults=[1])", "faults= does not exist yet"),
        ("(4, sed=3)", "no option 'sed'; there are world_size, backend, init, profile, schedule, seed"),
        ("(4, seed=-1)", "seed=-1: it is a number, or several"),
        ("(4, seed=[1, 2], schedule='round-robin')", "several seeds are for schedule='random'"),
        ("(4, schedules=2, seed=[1, 2])", "either schedules= or several seeds"),
        ("(4, schedule='fast')", 'schedule=\'fast\': it is "round-robin" or "random"'),
        ("(4, profile='mpi')", 'profile=\'mpi\': it is "gloo" or "nccl"'),
        ("(4, clock=3)", 'clock=3: it is "real" or "virtual"'),
        ("(4, watchdog=0)", "watchdog=0: it is seconds until"),
        ("(4, init=1)", "init=1: it is whether the process group is made"),
        ("(4, rank=4)", "rank=4 is not in a world of 4"),
        ("(4, rank=1, schedules=3)", "one rank alone has no schedule"),
    ],
)
def test_what_makes_no_sense_is_an_error_with_the_way_out(mark: str, message: str) -> None:
    with pytest.raises(marks.BadOptions, match=message):
        eval(f"parse{mark}", {"parse": lambda *args, **options: marks.parse(args, options, {}, {})})


def test_a_wrong_mark_is_an_error_of_the_collection(pytester: pytest.Pytester) -> None:
    session = run(
        pytester,
        """
        @pytest.mark.allranks(world_size=4, sed=3)
        def test_function():
            pass
        """,
        test_unittest="""
        import pytest, unittest

        class TestIt(unittest.TestCase):
            @pytest.mark.allranks(world_size="four")
            def test_method(self):
                pass
        """,
        test_async="""
        import pytest

        @pytest.mark.allranks(2)
        async def test_it():
            pass
        """,
        test_fine="def test_fine(): pass",
    )
    assert session.outcomes == {"errors": 3}
    assert "test_function: @pytest.mark.allranks: no option 'sed'; there are world_size," in session.text
    assert "test_method: @pytest.mark.allranks: world_size='four': it is" in session.text
    assert "test_it: a test marked allranks cannot be async" in session.text


RACE = """
    order = []

    @pytest.mark.allranks(world_size=4{options})
    def test_it(rank):
        dist.barrier()
        order.append(rank)
        dist.barrier()
        first = order[:4]
        dist.barrier()
        order.clear()
        print("order", first)
        dist.barrier()
        assert {check}
"""


def _orders(text: str) -> list[str]:
    return re.findall(r"\[rank 0\] order (.*)", text)


def test_seeds_and_schedules(pytester: pytest.Pytester) -> None:
    several = run(pytester, RACE.format(options=", schedules=6", check="True"), "-s")
    assert several.outcomes == {"passed": 1} and len(_orders(several.text)) == 6 and len(set(_orders(several.text))) > 1
    seeds = run(pytester, RACE.format(options=", seed=[3, 5]", check="True"), "-s")
    assert _orders(seeds.text) == [_orders(several.text)[3], _orders(several.text)[5]]
    one = run(pytester, RACE.format(options=", schedules=6", check="True"), "-s", "--allranks-seed=4")
    assert _orders(one.text) != []
    random = run(
        pytester, RACE.format(options="", check="True"), "-s", "--allranks-seed=4", "--allranks-schedule=random"
    )
    assert _orders(random.text) == [_orders(several.text)[4]]
    ini = run(
        pytester, RACE.format(options="", check="True"), "-s", "-o", "allranks_seed=4", "-o", "allranks_schedule=random"
    )
    assert _orders(ini.text) == [_orders(several.text)[4]]
    marked = RACE.format(options=", seed=5, schedule='random'", check="True")
    assert _orders(run(pytester, marked, "-s", "-o", "allranks_seed=4").text) == [_orders(several.text)[5]]
    bad = run(pytester, RACE.format(options="", check="True"), "-o", "allranks_seed=x")
    assert bad.outcomes == {"errors": 1} and "allranks_seed = x" in bad.text


def test_a_failure_names_the_schedule_that_repeats_it(pytester: pytest.Pytester) -> None:
    body = RACE.format(options=", schedules=8", check="first == [0, 1, 2, 3]")
    session = run(pytester, body)
    assert session.outcomes == {"failed": 1}
    repeat = session.text.split("repeat: pytest test_it.py::test_it ")[1].split("\n")[0].split()
    assert repeat[0] == "--allranks-schedule=random" and repeat[1].startswith("--allranks-seed=")
    again = run(pytester, body, *repeat)
    assert again.outcomes == {"failed": 1}
    assert again.section("allranks: world size 4") == session.section("allranks: world size 4")


def test_the_virtual_clock(pytester: pytest.Pytester) -> None:
    session = run(
        pytester,
        """
        @pytest.mark.allranks(world_size=2, clock="virtual")
        def test_it(rank):
            begin = time.monotonic()
            time.sleep(3600)
            assert 3600 <= time.monotonic() - begin < 3601
            dist.barrier()
        """,
    )
    assert session.outcomes == {"passed": 1}


def test_a_session_without_marked_tests_is_left_alone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_it():
            assert "torch" not in sys.modules and "allranks.launch" not in sys.modules
            assert not [name for name in sys.modules if name.startswith("allranks.testing.") and name != PLUGIN]

        PLUGIN = "allranks.testing.plugin"
        """
    )
    root = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "python"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "allranks.testing.plugin", "-p", "no:hypothesispytest", "-q"],
        cwd=pytester.path,
        env={**os.environ, "PYTHONPATH": root, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
