"""pytest's own fixtures, and tools of tests, in a test that runs on ranks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from plugin_support import HEAD, PLUGIN, run

pytest_plugins = ["pytester"]


def test_output_and_log_of_a_rank(pytester: pytest.Pytester) -> None:
    session = run(
        pytester,
        """
        pytestmark = m4

        def test_capsys(rank, capsys):
            print("x", rank)
            dist.barrier()
            print("y", rank, file=sys.stderr)
            dist.barrier()
            assert capsys.readouterr() == (f"x {rank}\\n", f"y {rank}\\n")
            with capsys.disabled():
                dist.barrier()

        def test_capfd(rank, capfd):
            os.write(1, f"fd {rank}\\n".encode())
            dist.barrier()
            os.system(f"echo child {rank}")
            dist.barrier()
            print("python", rank)
            assert capfd.readouterr().out == f"fd {rank}\\nchild {rank}\\npython {rank}\\n"

        @pytest.fixture
        def early(rank):
            logging.warning("setup %d", rank)

        def test_caplog(rank, early, caplog):
            logging.getLogger("some.name").warning("call %d", rank)
            dist.barrier()
            assert caplog.messages == [f"call {rank}"]
            assert [record.getMessage() for record in caplog.get_records("setup")] == [f"setup {rank}"]
            caplog.clear()
            with caplog.at_level(logging.INFO):
                logging.info("info %d", rank)
                dist.barrier()
            logging.info("unseen")
            assert caplog.messages == [f"info {rank}"]
            with caplog.at_level(logging.ERROR if rank == 0 else logging.INFO):
                dist.barrier()
                logging.warning("some")
                assert len(caplog.records) == (1 if rank == 0 else 2)

        def test_recwarn(rank, recwarn):
            warnings.warn(f"warned {rank}")
            dist.barrier()
            assert [str(one.message) for one in recwarn] == [f"warned {rank}"]
            with pytest.warns(UserWarning, match=f"again {rank}"):
                warnings.warn(f"again {rank}")
                dist.barrier()

        def test_warns():
            warnings.warn("shown in the summary")
        """,
    )
    assert session.outcomes == {"passed": 5, "warnings": 1}, session.text
    assert "shown in the summary" in session.text


def test_patches_are_seen_by_their_rank_only(pytester: pytest.Pytester) -> None:
    session = run(
        pytester,
        """
        from unittest import mock

        pytestmark = m4
        TABLE = {"kept": 1}
        VALUE = "module"

        class Thing:
            here = "class"

        THING = Thing()

        def test_monkeypatch(rank, monkeypatch, tmp_path):
            monkeypatch.setattr(os, "sep", f"<{rank}>")
            monkeypatch.setattr(Thing, "here", rank)
            monkeypatch.setattr(THING, "there", rank, raising=False)
            monkeypatch.setattr(sys.modules[__name__], "VALUE", rank)
            monkeypatch.setenv("SOME", str(rank))
            monkeypatch.setitem(TABLE, "kept", rank)
            monkeypatch.setitem(TABLE, f"new {rank}", rank)
            if rank == 0:
                monkeypatch.delitem(TABLE, "kept")
            (tmp_path / str(rank)).mkdir()
            monkeypatch.chdir(tmp_path / str(rank))
            monkeypatch.syspath_prepend(f"/no/{rank}")
            dist.barrier()
            assert (os.sep, os.environ["SOME"]) == (f"<{rank}>", str(rank))
            assert (Thing.here, THING.there, VALUE) == (rank, rank, rank)
            assert TABLE == ({"new 0": 0} if rank == 0 else {"kept": rank, f"new {rank}": rank})
            assert os.path.basename(os.getcwd()) == str(rank) and sys.path[0] == f"/no/{rank}"
            with monkeypatch.context() as inner:
                inner.setattr(os, "sep", "inner")
                dist.barrier()
                assert os.sep == "inner"
            dist.barrier()
            assert os.sep == f"<{rank}>"

        @mock.patch("os.getlogin")
        @mock.patch.dict(os.environ, {"MOCKED": "1"})
        @mock.patch.object(Thing, "here", "decorated")
        def test_mock(getlogin, rank):
            getlogin.return_value = rank
            dist.barrier()
            assert os.getlogin() == rank and os.environ["MOCKED"] == "1" and Thing.here == "decorated"
            with (
                mock.patch.dict(TABLE, {"mocked": rank}, clear=True),
                mock.patch.object(Thing, "here", rank),
                mock.patch.object(THING, "there", rank, create=True),
            ):
                dist.barrier()
                assert TABLE == {"mocked": rank} and Thing.here == rank == THING.there
                dist.barrier()
            assert TABLE == {"kept": 1}
            patch = mock.patch("os.sep", str(rank))
            patch.start()
            dist.barrier()
            assert os.sep == str(rank)
            mock.patch.stopall()
            dist.barrier()
            assert os.sep == "/"

        @pytest.mark.allranks(1)
        def test_all_back():
            assert os.sep == "/" and Thing.here == "class" and TABLE == {"kept": 1} and VALUE == "module"
            assert not hasattr(THING, "there") and "SOME" not in os.environ
            assert os.system('test -z "$SOME$MOCKED"') == 0
        """,
    )
    assert session.outcomes == {"passed": 3}, session.text


def test_hypothesis_draws_once_for_all_ranks(pytester: pytest.Pytester) -> None:
    session = run(
        pytester,
        """
        from hypothesis import HealthCheck, assume, given, settings, strategies as st

        pytestmark = m4
        few = settings(max_examples=8, deadline=None, database=None)

        @few
        @given(x=st.integers(0, 100), data=st.data())
        def test_draws(rank, tmp_path, monkeypatch, x, data):
            assume(x != 50)
            assert total(x) == 4 * x and not os.environ.get("MINE")
            monkeypatch.setenv("MINE", "1")

        class TestMethod:
            def setup_method(self):
                self.rank = dist.get_rank()

            @few
            @given(x=st.integers(0, 100))
            def test_method(self, rank, x):
                assert total(x) == 4 * x and self.rank == rank

        def test_decorator_below():
            with pytest.raises(TypeError, match="@given goes above"):
                allranks.test(2)(test_draws)

        @few
        @given(x=st.integers(0, 100))
        @allranks.test(2)
        def below(x, rank):
            assert total(x) == 2 * x and rank == dist.get_rank()

        @settings(max_examples=60, deadline=None, database=None)
        @given(x=st.integers(0, 100))
        def test_shrinks(rank, x):
            if rank == 2:
                assert x < 13
            dist.barrier()
        """,
        "--continue-on-collection-errors",
        test_other="""
        from test_it import below

        def test_below():
            below()
        """,
        test_refused="""
        import pytest, unittest
        from hypothesis import given, strategies as st

        class TestOfUnittest(unittest.TestCase):
            @pytest.mark.allranks(2)
            @given(x=st.integers(0, 100))
            def test_refused(self, x):
                pass
        """,
    )
    assert session.outcomes == {"passed": 4, "failed": 1, "errors": 1}, session.text
    assert "@given on a unittest method cannot be marked allranks" in session.text
    assert "assert 13 < 13" in session.text and "rank 2 failed at test_it.py" in session.text


def test_doctests_and_subtests_beside(pytester: pytest.Pytester) -> None:
    session = run(
        pytester,
        '''
        pytestmark = m4

        def double(x):
            """
            >>> double(2)
            4
            """
            return 2 * x

        def test_it(rank):
            assert total(double(1)) == 8
        ''',
        "--doctest-modules",
    )
    assert session.outcomes == {"passed": 2}, session.text


def _process(pytester: pytest.Pytester, body: str, *options: str, stdin: str = "", **variables: str) -> str:
    """A session in a process of its own; what it prints."""
    pytester.makepyfile(test_it=HEAD + body)
    root = os.path.join(os.path.dirname(__file__), "..", "..", "python")
    path = os.pathsep.join([os.path.abspath(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *PLUGIN, "-p", "no:cacheprovider", *options],
        cwd=pytester.path,
        env={**os.environ, "PYTHONPATH": path, **variables},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=100,
    )
    return done.stdout + done.stderr


def test_pdb_stops_in_the_failing_rank(pytester: pytest.Pytester) -> None:
    body = """
@m4
def test_fails(rank):
    value = rank * 10
    if rank == 2:
        assert value == 21
    dist.barrier()

@m4
def test_breakpoint(rank):
    if rank == 1:
        breakpoint()
        assert rank == 1
    dist.barrier()

@m4
def test_quits(rank):
    assert rank != 3

def test_never_reached():
    pass
"""
    commands = "p f'value {value}'\np sorted(t.name for t in threading.enumerate())\nc\np f'rank is {rank}'\nc\nq\n"
    text = _process(pytester, body, "--pdb", stdin=commands)
    assert "(rank 2 Pdb) 'value 20'" in text and "['MainThread']" in text, text
    assert "(rank 1 Pdb) 'rank is 1'" in text and "(rank 3 Pdb)" in text
    assert text.count("entering PDB") == 2 and "Quitting debugger" in text and "1 failed, 1 passed" in text


def test_processes_of_xdist(pytester: pytest.Pytester) -> None:
    body = "@pytest.mark.allranks([2, 3])\n@pytest.mark.parametrize('x', range(3))\n"
    body += "def test_it(x, rank):\n    assert total(1) > x or rank == 0\n"
    text = _process(pytester, body, "-n", "2")
    assert "1 failed, 5 passed" in text and "rank 1 failed at test_it.py" in text, text


def test_timeouts_and_ctrl_c_end_the_ranks(pytester: pytest.Pytester) -> None:
    body = """
pytestmark = m4

@pytest.mark.timeout(0.5)
def test_loops(rank):
    if rank == 2:
        while True:
            pass
    dist.barrier()

def test_next(rank):
    assert total(rank) == 6 and not [t for t in threading.enumerate() if t is not threading.current_thread()]

def test_interrupted(rank):
    if rank == 1:
        os.system("kill -INT $PPID")
        while True:
            time.sleep(0.01)
    dist.barrier()

def test_never():
    pass
"""
    text = _process(pytester, body)
    assert "1 failed, 1 passed" in text and "Timeout" in text and "KeyboardInterrupt" in text, text
    assert "test_it.py::test_interrupted, interrupted:\n" in text
    assert "ranks 0, 2-3 stood at test_it.py" in text and "rank 1 stood at test_it.py" in text
