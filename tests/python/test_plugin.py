"""The pytest plugin: marked tests that pass, on their ranks, with fixtures of every kind."""

from __future__ import annotations

import pytest
from plugin_support import run

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.oldest


def test_the_body_runs_on_every_rank(pytester: pytest.Pytester) -> None:
    session = run(
        pytester,
        """
        @pytest.mark.allranks(world_size=4)
        def test_sum(rank, world_size):
            t = torch.tensor([float(rank)])
            dist.all_reduce(t)
            assert t.item() == 6 and world_size == 4 and dist.get_rank() == rank

        @pytest.mark.allranks(world_size=[2, 3])
        def test_sizes(world_size):
            assert total(1) == world_size == dist.get_world_size()

        @pytest.mark.allranks([2, 3])
        @pytest.mark.parametrize("x", ["a", "b"])
        def test_both(x, world_size):
            assert of_all(x) == [x] * world_size

        @pytest.mark.allranks(2)
        class TestOfAClass:
            def test_two(self, world_size):
                assert total(1) == 2

            @pytest.mark.allranks(world_size=3)
            def test_nearer_mark_wins(self, world_size):
                assert total(1) == 3

        def test_unmarked():
            assert not dist.is_initialized() and "RANK" not in os.environ
        """,
        "-v",
    )
    assert session.outcomes == {"passed": 10}
    for name in ("test_sizes[2ranks]", "test_sizes[3ranks]", "test_both[2ranks-a]", "test_both[3ranks-b]"):
        assert f"::{name} PASSED" in session.text


def test_a_mark_of_the_module_holds_for_every_test(pytester: pytest.Pytester) -> None:
    session = run(
        pytester,
        """
        pytestmark = [pytest.mark.allranks(world_size=3, backend="nccl"), pytest.mark.filterwarnings("error")]

        def test_one():
            assert total(1) == 3 and dist.get_backend() == "nccl"

        @pytest.mark.allranks(init=False)
        def test_options_add_up(rank):
            assert not dist.is_initialized()
            dist.init_process_group("gloo", rank=rank, world_size=3)
            assert total(1) == 3
        """,
    )
    assert session.outcomes == {"passed": 2}


def test_function_fixtures_are_of_a_rank_and_wider_ones_of_all(pytester: pytest.Pytester) -> None:
    session = run(
        pytester,
        """
        pytestmark = m4
        log = []

        @pytest.fixture(scope="session")
        def weights():
            assert not dist.is_initialized()
            log.append("session up")
            yield torch.ones(3)
            assert not dist.is_initialized()

        @pytest.fixture(scope="module", params=["p", "q"])
        def module(request, weights):
            log.append(request.param)
            return [request.param]

        @pytest.fixture
        def half(rank, module):
            group = dist.new_group([0, 1])
            dist.barrier()
            yield group, rank, module
            dist.barrier()
            log.append(f"down {rank}")

        @pytest.fixture(autouse=True)
        def number(request, rank):
            request.node.number = rank
            request.addfinalizer(lambda: log.append(f"finalizer {rank}"))

        @pytest.fixture(params=[1, 2])
        def factor(request, half):
            return request.param * half[1]

        def test_fixtures(factor, half, weights, rank, request):
            dist.barrier()
            assert half[1] == rank == request.node.number and total(factor) in (6, 12)
            assert len({id(weights) for weights in of_all_ids(weights)}) == 1

        def of_all_ids(x):
            ids = of_all(id(x))
            assert len(set(ids)) == 1
            return [x]

        class TestInstances:
            @pytest.fixture(scope="class")
            @classmethod
            def shared(cls):
                return []

            def setup_method(self):
                self.rank = dist.get_rank()

            def teardown_method(self):
                dist.barrier()

            def test_method(self, rank, shared):
                dist.barrier()
                assert self.rank == rank
                shared.append(rank)
                dist.barrier()
                assert sorted(shared) == [0, 1, 2, 3]

        @pytest.mark.allranks(init=False)
        def test_log(rank):
            for each in range(4):
                assert log.count(f"down {each}") == 4 and log.count(f"finalizer {each}") in (5, 6)
            assert log.count("session up") == 1 and log.count("p") == log.count("q") == 1
        """,
    )
    assert session.outcomes == {"passed": 6}


def test_a_wide_fixture_asked_for_by_ranks_is_made_once(pytester: pytest.Pytester) -> None:
    session = run(
        pytester,
        """
        pytestmark = m4
        made, torn = [], []

        @pytest.fixture(scope="module")
        def late():
            time.sleep(0.001)
            made.append(1)
            yield object()
            torn.append(dist.is_initialized())

        @pytest.fixture
        def mine(rank):
            return [rank]

        def test_late(request, rank):
            value = request.getfixturevalue("late")
            assert len(set(of_all(id(value)))) == 1 and made == [1] and torn == []
            assert request.getfixturevalue("mine") == [rank]
            assert len(set(of_all(str(request.getfixturevalue("tmp_path"))))) == 1

        def test_still_there(late):
            assert made == [1] and torn == []
        """,
    )
    assert session.outcomes == {"passed": 2}


def test_a_fixture_may_replace_rank(pytester: pytest.Pytester) -> None:
    session = run(
        pytester,
        """
        @m4
        def test_rank(rank):
            assert rank == f"rank {dist.get_rank()}"
        """,
        conftest="""
        import pytest, torch.distributed as dist

        @pytest.fixture
        def rank(rank):
            assert rank == dist.get_rank()
            return f"rank {rank}"
        """,
    )
    assert session.outcomes == {"passed": 1}


def test_tmp_path_is_one_folder_and_goes_at_the_end(pytester: pytest.Pytester) -> None:
    session = run(
        pytester,
        """
        pytestmark = m4
        seen = []

        def test_folder(rank, tmp_path):
            (tmp_path / f"file{rank}").write_text("x")
            dist.barrier()
            assert len(list(tmp_path.iterdir())) == 4
            seen.append(tmp_path)

        def test_another(tmp_path):
            assert len(set(map(str, seen))) == 1 and str(tmp_path) != str(seen[0]) and not seen[0].exists()
        """,
        "-o",
        "tmp_path_retention_policy=failed",
    )
    assert session.outcomes == {"passed": 2}


def test_unittest_methods(pytester: pytest.Pytester) -> None:
    session = run(
        pytester,
        """
        @m4
        class TestIt(unittest.TestCase):
            @classmethod
            def setUpClass(cls):
                assert not dist.is_initialized()
                cls.calls = []

            def setUp(self):
                self.rank = dist.get_rank()
                dist.barrier()

            def tearDown(self):
                dist.barrier()
                self.calls.append(self.rank)

            def test_a(self):
                dist.barrier()
                self.assertEqual(self.rank, dist.get_rank())

            def test_b_cleaned_up(self):
                self.assertEqual(sorted(self.calls), [0, 1, 2, 3])

            @pytest.mark.allranks(world_size=[2, 3])
            def test_sizes(self):
                self.assertIn(total(1), (2, 3))

            def test_skips(self):
                self.skipTest("not here")

            @unittest.expectedFailure
            def test_expected(self):
                self.assertEqual(total(1), 5)

            def test_fails(self):
                self.assertEqual(self.rank // 3, 0, "high rank")
        """,
    )
    assert session.outcomes == {"passed": 3, "skipped": 1, "xfailed": 1, "failed": 1}
    assert "AssertionError: 1 != 0 : high rank" in session.text and "rank 3 failed at test_it.py" in session.text


def test_one_rank_of_a_big_world_leaves_nothing(pytester: pytest.Pytester) -> None:
    session = run(
        pytester,
        """
        @pytest.mark.allranks(world_size=512, rank=17)
        def test_one(rank, world_size, tmp_path, monkeypatch, capsys, caplog):
            assert (dist.get_rank(), dist.get_world_size()) == (rank, world_size) == (17, 512)
            assert os.environ["RANK"] == "17"
            dist.all_reduce(torch.ones(2))
            print("x")
            logging.warning("y")
            assert capsys.readouterr().out == "x\\n" and caplog.messages == ["y"]
            monkeypatch.setenv("SOME", "1")

        @pytest.mark.allranks(world_size=512, rank=17)
        def test_fails(rank):
            assert rank == 3

        def test_after():
            assert "RANK" not in os.environ and "SOME" not in os.environ and not dist.is_initialized()
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # torch's own
            try:
                assert type(dist.group.WORLD._get_backend(torch.device("cpu"))).__name__ == "ProcessGroupGloo"
            finally:
                dist.destroy_process_group()
            dist.init_process_group("allranks", rank=3, world_size=64)
            assert dist.get_rank() == 3
            dist.destroy_process_group()

        @m4
        def test_all_ranks_again(rank):
            assert total(rank) == 6
        """,
    )
    assert session.outcomes == {"passed": 3, "failed": 1}
    assert "rank 17 failed at test_it.py" in session.text and "assert 17 == 3" in session.text


def test_a_process_group_outside_of_the_ranks_is_left_alone(pytester: pytest.Pytester) -> None:
    session = run(
        pytester,
        """
        @pytest.fixture(scope="session", autouse=True)
        def outside():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            yield
            assert dist.get_world_size() == 1
            dist.destroy_process_group()

        @m4
        def test_inside(rank):
            assert total(1) == 4 and dist.get_rank() == rank

        @pytest.mark.allranks(512, rank=17)
        def test_one():
            pass

        def test_outside():
            assert total(1) == 1
        """,
    )
    assert session.outcomes == {"passed": 2, "failed": 1}, session.text
    assert "has a process group already: destroy it before" in session.section("test_one")
    assert len(session.section("test_one").splitlines()) == 1
