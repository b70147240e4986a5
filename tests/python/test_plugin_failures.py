"""What a failing marked test says: which rank, where, what the others did, and how to see it again."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from plugin_support import run

pytest_plugins = ["pytester"]


def test_one_ranks_assertion_is_the_failure(pytester: pytest.Pytester) -> None:
    body = """
        @m4
        def test_it(rank):
            print("seen")
            logging.warning("logged")
            x = {"a": rank}
            if rank == 2:
                assert x == {"a": 3}
            dist.all_reduce(torch.ones(1))
        """
    session = run(pytester, body)
    assert session.outcomes == {"failed": 1}
    failure = session.section("test_it")
    assert 'assert x == {"a": 3}' in failure and "E           AssertionError: assert {'a': 2} == {'a': 3}" in failure
    assert "rank = 2" in failure and "allranks/" not in failure and "_pytest" not in failure
    place = r"test_it.py:\d+, in test_it"
    report = session.section("allranks: world size 4")
    assert re.search(rf"^rank 2 failed at {place}: AssertionError: assert {{'a': 2}} == {{'a': 3}}$", report, re.M)
    assert re.search(
        rf"^ranks 0-1, 3 stood at {place} \(waits in all_reduce sum float32 \(1,\) #0, .*\)$", report, re.M
    )
    assert "repeat: pytest test_it.py::test_it  (round-robin, seed 0)" in report
    for rank in range(4):
        assert f"[rank {rank}] seen" in session.section("Captured stdout call")
        assert f"[rank {rank}] WARNING  root:" in session.section("Captured log call")
    again = run(pytester, body)
    assert session.text.rsplit(" in ", 1)[0] == again.text.rsplit(" in ", 1)[0]


def test_equal_failures_are_folded(pytester: pytest.Pytester) -> None:
    session = run(
        pytester,
        """
        @pytest.mark.allranks(8)
        def test_same():
            raise ValueError("no")

        @pytest.mark.allranks(64)
        def test_like(rank):
            dist.barrier()
            assert rank == 100

        @m4
        def test_unlike(rank):
            if rank == 3:
                raise KeyError("three")
            assert rank != 1
        """,
    )
    assert session.outcomes == {"failed": 3}
    assert "all 8 ranks failed at test_it.py" in session.text and "in test_same: ValueError: no" in session.text
    assert "all 64 ranks failed at" in session.text and "  rank 3: AssertionError: assert 3 == 100" in session.text
    assert "  and 60 more" in session.text and "rank 9" not in session.text
    assert "ranks 0, 2 finished" in session.text and "rank 3 failed at" in session.text


def test_a_deadlock_and_a_mismatch_are_failures_with_the_finding(pytester: pytest.Pytester) -> None:
    session = run(
        pytester,
        """
        pytestmark = m4

        def test_deadlock(rank):
            if rank == 1:
                dist.recv(torch.ones(1), 0)
            dist.all_reduce(torch.ones(1))

        def test_mismatch(rank):
            dist.all_reduce(torch.ones(1 + rank // 3))

        @pytest.mark.xfail(raises=allranks.RankFailed, strict=True)
        def test_expected(rank):
            dist.all_reduce(torch.ones(1 + rank // 3))
        """,
    )
    assert session.outcomes == {"failed": 2, "xfailed": 1}
    assert session.text.count("error[deadlock-cycle]") == 2  # With the failure, and in the summary of one line.
    failure = session.section("test_deadlock")
    assert "rank 1: recv float32 (1,) from group rank 0 in test_deadlock" in failure
    assert "allranks/" not in failure and "hidden" not in failure and len(failure.splitlines()) < 15
    assert "rank 3: all_reduce sum float32 (2,) in test_mismatch" in session.section("test_mismatch")


def test_findings_that_are_warnings_are_warnings(pytester: pytest.Pytester) -> None:
    body = """
        @m4
        def test_it(rank):
            if rank == 0:
                dist.isend(torch.ones(1), 1)
        """
    session = run(pytester, body)
    assert session.outcomes == {"passed": 1, "warnings": 1}
    assert "FindingWarning: warning[unwaited-work]" in session.text
    assert run(pytester, body, "-W", "error").outcomes == {"failed": 1}


def test_a_rank_that_leaves_is_a_failure(pytester: pytest.Pytester) -> None:
    session = run(
        pytester,
        """
        pytestmark = m4

        def test_hard(rank):
            if rank == 1:
                os._exit(0)

        def test_hard_while_others_wait(rank):
            if rank in (0, 2):
                os._exit(5)
            dist.barrier()

        def test_soft(rank):
            if rank == 1:
                sys.exit(0)

        def test_after():
            dist.barrier()
        """,
    )
    assert session.outcomes == {"failed": 3, "passed": 1}
    assert "rank 1 ended by os._exit(0) in the test" in session.section("test_hard")
    assert "ranks 0, 2 ended by os._exit(5) in the test" in session.section("test_hard_while_others_wait")
    assert "SystemExit: 0" in session.section("test_soft")
    assert "in test_soft: sys.exit(0)\nranks 0, 2-3 finished" in session.text


def test_skips_agree_or_say_who_differs(pytester: pytest.Pytester) -> None:
    session = run(
        pytester,
        """
        pytestmark = m4

        def test_skip():
            pytest.skip("not today")

        def test_import():
            pytest.importorskip("no_such_module")

        def test_xfail():
            pytest.xfail("known")

        @pytest.mark.xfail(strict=True)
        def test_mark(rank):
            assert rank < 3

        @pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
        def test_gpu():
            assert torch.cuda.is_available()

        @pytest.fixture
        def skipping():
            pytest.skip("in the fixture")

        def test_fixture(skipping):
            pass

        def test_some(rank):
            if rank == 1:
                pytest.skip("rank 1 only")

        def test_some_while_others_wait(rank):
            if rank == 1:
                pytest.skip("rank 1 only")
            dist.barrier()

        def test_fails_and_skips(rank):
            if rank == 1:
                pytest.skip("rank 1 only")
            assert rank != 2

        @pytest.mark.xfail(strict=True)
        def test_passes():
            pass
        """,
        "-rsx",
    )
    gpu = {"passed": 1, "skipped": 3} if "no GPU" not in session.text else {"skipped": 4}
    assert session.outcomes == {**gpu, "xfailed": 2, "failed": 4}
    for reason in ("not today", "could not import 'no_such_module'", "known", "in the fixture"):
        assert reason in session.text
    assert "ranks do not agree on the outcome:\nranks 0, 2-3 passed\nrank 1 skipped: rank 1 only" in session.text
    assert "ranks 0, 2-3 stopped\nrank 1 skipped: rank 1 only\nerror[missing-participant]" in session.text
    assert "ranks 0, 3 finished\nrank 1 skipped: rank 1 only" in session.text and "XPASS(strict)" in session.text


def test_errors_of_fixtures(pytester: pytest.Pytester) -> None:
    session = run(
        pytester,
        """
        pytestmark = m4
        torn = []

        @pytest.fixture
        def outer(rank):
            yield
            torn.append(rank)

        @pytest.fixture
        def bad_setup(rank, outer):
            dist.barrier()
            if rank == 1:
                raise ValueError("bad setup")

        @pytest.fixture
        def bad_teardown(rank, outer):
            yield
            dist.barrier()
            if rank == 1:
                raise ValueError("bad teardown")

        @pytest.fixture(scope="module")
        def bad_module():
            raise ValueError("bad module")

        def test_setup(bad_setup):
            pass

        def test_teardown(bad_teardown):
            pass

        def test_module(bad_module):
            pass

        def test_unknown(no_such_fixture):
            pass

        @pytest.fixture
        def teardown_after_failure(rank):
            yield
            torn.append(rank + 10)

        def test_fails(teardown_after_failure, rank):
            dist.barrier()
            assert rank == 9

        @pytest.mark.allranks(1)
        def test_torn():
            assert sorted(torn) == [0, 0, 1, 1, 2, 2, 3, 3, 10, 11, 12, 13]
        """,
    )
    assert session.outcomes == {"errors": 4, "passed": 2, "failed": 1}
    setup, teardown = (
        session.section("ERROR at setup of test_setup"),
        session.section("ERROR at teardown of test_teardown"),
    )
    assert 'raise ValueError("bad setup")' in setup and "allranks/" not in setup
    assert 'raise ValueError("bad teardown")' in teardown and "allranks/" not in teardown
    assert "rank 1 failed in setup at test_it.py" in session.text
    assert "rank 1 failed while cleaning up: ValueError: bad teardown" in session.text
    assert "allranks/" not in session.section("ERROR at setup of test_module")
    assert "fixture 'no_such_fixture' not found" in session.text and "FixtureLookupError" not in session.text


def test_usage_in_a_rank(pytester: pytest.Pytester) -> None:
    session = run(
        pytester,
        """
        @m4
        def test_nested():
            allranks.run(lambda: 1, world_size=2)

        @m4
        def test_raises(rank):
            with pytest.raises(RuntimeError, match="hey"):
                raise RuntimeError("hey")
            with pytest.raises(ValueError, match="Invalid"):
                dist.all_reduce(torch.ones(1), op="no such op")
            dist.barrier()

        @m4
        def test_threads(rank):
            seen = []
            def work():
                dist.all_reduce(torch.ones(1))
                seen.append(dist.get_rank())
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            assert seen == [rank]

        def test_not_marked(rank):
            pass
        """,
    )
    assert session.outcomes["failed"] >= 1 and session.outcomes["errors"] == 1
    assert "runs cannot be nested" in session.section("test_nested")
    assert "fixture 'rank' is for tests marked @pytest.mark.allranks" in session.text


def test_a_rank_may_end_the_session(pytester: pytest.Pytester) -> None:
    body = """
        @m4
        def test_it(rank):
            if rank == 2:
                pytest.exit("that will do")
            dist.barrier()

        def test_next():
            pass
        """
    session = run(pytester, body)
    assert session.outcomes == {} and "Exit: that will do" in session.text


def test_a_launcher_is_refused(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("WORLD_SIZE", "4"), ("RANK", "0"), ("LOCAL_RANK", "0")):
        monkeypatch.setenv(name, value)
    session = run(pytester, "@m4\ndef test_it():\n    pass\n\ndef test_other():\n    pass\n")
    assert session.outcomes == {"errors": 1, "passed": 1}
    assert "one of 4 that torchrun started" in session.text and "start pytest by itself" in session.text


def test_reports_for_machines(pytester: pytest.Pytester) -> None:
    session = run(
        pytester,
        """
        pytestmark = m4

        def test_fails(rank, record_property):
            record_property("size", 4)
            record_property("rank", rank)
            assert rank == 9

        def test_next():
            dist.barrier()
        """,
        "--junitxml=report.xml",
        "-o",
        "junit_family=xunit1",
        "--durations=1",
        "-x",
    )
    assert session.outcomes == {"failed": 1} and "call     test_it.py::test_fails" in session.text
    case = ET.parse(pytester.path / "report.xml").getroot().find(".//testcase")
    assert case is not None
    failure = case.find("failure")
    assert failure is not None and "all 4 ranks failed at" in (failure.text or "")
    found = [(p.get("name"), p.get("value")) for p in case.iterfind("properties/property")]
    assert sorted(found) == [("rank", str(rank)) for rank in range(4)] + [("size", "4")]


def test_last_failed_and_keywords(pytester: pytest.Pytester) -> None:
    body = "@m4\ndef test_a(rank):\n    assert rank != 2\n\n@m4\ndef test_b():\n    pass\n"
    assert run(pytester, body, cache=True).outcomes == {"failed": 1, "passed": 1}
    assert run(pytester, body, "--lf", cache=True).outcomes == {"failed": 1}
    assert run(pytester, body, "-k", "test_b").outcomes == {"passed": 1, "deselected": 1}
    assert run(pytester, body, "-s", "-p", "no:logging", "-k", "test_b").outcomes == {"passed": 1, "deselected": 1}
    assert run(pytester, body, "--setup-show").outcomes == {"failed": 1, "passed": 1}
