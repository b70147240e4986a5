"""Every operation in each of its forms leaves the right values on every rank, to the last bit.

Inputs are small whole numbers, so that sums are exact in any order and plain torch says what must come out; the order
of reductions is the matter of `test_parity_gloo.py`. `make mutants` makes operations wrong on purpose, and this is the
first test that has to notice: so each form returns all that it wrote, on every rank, empty and large tensors included.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from functools import reduce
from itertools import chain
from typing import Any

import allranks
import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

pytestmark = pytest.mark.oldest

WORLD = 3
#: Results of more than 1 MiB, which several threads move.
LARGE = 2**18 + 3
Tensors = list[torch.Tensor]
Form = Callable[["Sizes"], tuple[Tensors, Tensors]]
FORMS: dict[str, Form] = {}


class Sizes:
    """What one rank gives and expects, for tensors of about `n` elements of a dtype."""

    def __init__(self, n: int, dtype: torch.dtype) -> None:
        self.n, self.dtype = n, dtype
        self.rank = dist.get_rank()

    def given(self, rank: int | None = None, *, n: int | None = None, which: int = 0) -> torch.Tensor:
        """What a rank gives; `which` makes several."""
        at = torch.arange(self.n if n is None else n)
        number = self.rank if rank is None else rank
        return ((at * 7 + number * 13 + which * 29) % 11 - 3).to(self.dtype)

    def room(self, n: int | None = None) -> torch.Tensor:
        """Where a result goes."""
        return torch.full((self.n if n is None else n,), 9, dtype=self.dtype)

    def sum(self, *, n: int | None = None, which: int = 0) -> torch.Tensor:
        """Of what all ranks give."""
        return reduce(operator.add, (self.given(r, n=n, which=which) for r in range(WORLD)))

    def mine(self, whole: torch.Tensor) -> torch.Tensor:
        """This rank's part."""
        return whole.chunk(WORLD)[self.rank] if whole.numel() else whole


def form(function: Form) -> Form:
    FORMS[function.__name__] = function
    return function


@form
def all_reduce(s: Sizes) -> tuple[Tensors, Tensors]:
    x, y = s.given(), s.given(which=1)
    dist.all_reduce(x)
    dist.all_reduce(y, op=dist.ReduceOp.MAX)
    largest = reduce(torch.maximum, (s.given(r, which=1) for r in range(WORLD)))
    return [x, y], [s.sum(), largest]


@form
def all_reduce_later(s: Sizes) -> tuple[Tensors, Tensors]:
    xs = [s.given(which=i) for i in range(3)]
    works = [dist.all_reduce(x, async_op=True) for x in xs]
    for work in reversed(works):
        work.wait()
    return xs, [s.sum(which=i) for i in range(3)]


@form
def all_reduce_in_a_group(s: Sizes) -> tuple[Tensors, Tensors]:
    group = dist.new_group([0, 2])
    x = s.given()
    if s.rank != 1:
        dist.all_reduce(x, group=group)
    return [x], [s.given() if s.rank == 1 else s.given(0) + s.given(2)]


@form
def all_reduce_coalesced(s: Sizes) -> tuple[Tensors, Tensors]:
    xs = [s.given(), s.given(n=s.n + 1, which=1)]
    dist.all_reduce_coalesced(xs)
    return xs, [s.sum(), s.sum(n=s.n + 1, which=1)]


@form
def all_reduce_under_a_manager(s: Sizes) -> tuple[Tensors, Tensors]:
    xs = [s.given(), s.given(which=1)]
    with dist._coalescing_manager(async_ops=True) as work:
        for x in xs:
            dist.all_reduce(x)
    work.wait()
    return xs, [s.sum(), s.sum(which=1)]


@form
def all_reduce_sparse(s: Sizes) -> tuple[Tensors, Tensors]:
    def sparse(rank: int) -> torch.Tensor:
        places = torch.arange(rank, rank + 2 * s.n, 2).view(1, -1)
        return torch.sparse_coo_tensor(places, s.given(rank), (2 * s.n + WORLD,), check_invariants=True)

    x = sparse(s.rank)
    dist.all_reduce(x)
    return [x.to_dense()], [reduce(operator.add, (sparse(r).to_dense() for r in range(WORLD)))]


@form
def reduce_to_each(s: Sizes) -> tuple[Tensors, Tensors]:
    xs = [s.given(which=root) for root in range(WORLD)]
    for root, x in enumerate(xs):
        dist.reduce(x, root)
    return [xs[s.rank]], [s.sum(which=s.rank)]


@form
def broadcast_from_each(s: Sizes) -> tuple[Tensors, Tensors]:
    xs = [s.given(which=root) for root in range(WORLD)]
    for root, x in enumerate(xs):
        dist.broadcast(x, root)
    return xs, [s.given(root, which=root) for root in range(WORLD)]


@form
def all_gather(s: Sizes) -> tuple[Tensors, Tensors]:
    out, x = [s.room() for _ in range(WORLD)], s.given()
    dist.all_gather(out, x)
    return [*out, x], [*(s.given(r) for r in range(WORLD)), s.given()]


@form
def all_gather_strided(s: Sizes) -> tuple[Tensors, Tensors]:
    out = [s.room(2 * s.n)[::2] for _ in range(WORLD)]
    dist.all_gather(out, s.given().repeat_interleave(2)[::2])
    return out, [s.given(r) for r in range(WORLD)]


@form
def all_gather_into_tensor(s: Sizes) -> tuple[Tensors, Tensors]:
    out, x = s.room(WORLD * s.n), s.given()
    dist.all_gather_into_tensor(out, x)
    return [out, x], [torch.cat([s.given(r) for r in range(WORLD)]), s.given()]


@form
def all_gather_coalesced(s: Sizes) -> tuple[Tensors, Tensors]:
    out = [[s.room(), s.room(s.n + 1)] for _ in range(WORLD)]
    dist.all_gather_coalesced(out, [s.given(), s.given(n=s.n + 1, which=1)])
    both = [(s.given(r), s.given(r, n=s.n + 1, which=1)) for r in range(WORLD)]
    return [*chain(*out)], [*chain(*both)]


@form
def all_gather_under_a_manager(s: Sizes) -> tuple[Tensors, Tensors]:
    out = [s.room(WORLD * s.n), s.room(WORLD * s.n)]
    with dist._coalescing_manager(async_ops=True) as work:
        for which, o in enumerate(out):
            dist.all_gather_into_tensor(o, s.given(which=which))
    work.wait()
    return out, [torch.cat([s.given(r, which=which) for r in range(WORLD)]) for which in range(2)]


@form
def gather_to_each(s: Sizes) -> tuple[Tensors, Tensors]:
    out = [s.room() for _ in range(WORLD)]
    for root in range(WORLD):
        dist.gather(s.given(which=root), out if root == s.rank else None, root)
    return out, [s.given(r, which=s.rank) for r in range(WORLD)]


@form
def scatter_from_each(s: Sizes) -> tuple[Tensors, Tensors]:
    out = [s.room() for _ in range(WORLD)]
    for root, o in enumerate(out):
        dist.scatter(o, [s.given(which=i) for i in range(WORLD)] if root == s.rank else None, root)
    return out, [s.given(root, which=s.rank) for root in range(WORLD)]


@form
def reduce_scatter(s: Sizes) -> tuple[Tensors, Tensors]:
    out = s.room()
    dist.reduce_scatter(out, [s.given(which=i) for i in range(WORLD)])
    return [out], [s.sum(which=s.rank)]


@form
def reduce_scatter_tensor(s: Sizes) -> tuple[Tensors, Tensors]:
    out, x = s.room(), s.given(n=WORLD * s.n)
    dist.reduce_scatter_tensor(out, x)
    return [out, x], [s.mine(s.sum(n=WORLD * s.n)), s.given(n=WORLD * s.n)]


@form
def reduce_scatter_coalesced(s: Sizes) -> tuple[Tensors, Tensors]:
    out = [s.room(), s.room()]
    with dist._coalescing_manager(async_ops=True) as work:
        for which, o in enumerate(out):
            dist.reduce_scatter_tensor(o, s.given(n=WORLD * s.n, which=which))
    work.wait()
    return out, [s.mine(s.sum(n=WORLD * s.n, which=which)) for which in range(2)]


@form
def all_to_all(s: Sizes) -> tuple[Tensors, Tensors]:
    out = [s.room() for _ in range(WORLD)]
    dist.all_to_all(out, [s.given(which=j) for j in range(WORLD)])
    return out, [s.given(i, which=s.rank) for i in range(WORLD)]


@form
def all_to_all_single(s: Sizes) -> tuple[Tensors, Tensors]:
    out = s.room(WORLD * s.n)
    dist.all_to_all_single(out, s.given(n=WORLD * s.n))
    parts = [s.given(i, n=WORLD * s.n).split(s.n or 1)[s.rank if s.n else 0] for i in range(WORLD)]
    return [out], [torch.cat(parts)]


@form
def all_to_all_single_uneven(s: Sizes) -> tuple[Tensors, Tensors]:
    def splits(rank: int) -> list[int]:
        return [s.n + rank, 0, 2 * rank + 1]

    expects = [splits(i)[s.rank] for i in range(WORLD)]
    out = s.room(sum(expects))
    dist.all_to_all_single(out, s.given(n=sum(splits(s.rank))), expects, splits(s.rank))
    parts = [s.given(i, n=sum(splits(i))).split(splits(i))[s.rank] for i in range(WORLD)]
    return [out], [torch.cat(parts)]


@form
def send(s: Sizes) -> tuple[Tensors, Tensors]:
    left, right = (s.rank - 1) % WORLD, (s.rank + 1) % WORLD
    out = [s.room() for _ in range(3)]
    if s.rank:
        dist.recv(out[0], left, tag=1)
    dist.send(s.given(), right, tag=1)
    if not s.rank:
        dist.recv(out[0], tag=1)
    works = [dist.irecv(out[1], left, tag=3), dist.isend(s.given(which=1), right, tag=3)]
    messages = [dist.P2POp(dist.isend, s.given(which=2), left), dist.P2POp(dist.irecv, out[2], right)]
    for work in [*works, *dist.batch_isend_irecv(messages)]:
        work.wait()
    return out, [s.given(left), s.given(left, which=1), s.given(right, which=2)]


@form
def objects(s: Sizes) -> tuple[Tensors, Tensors]:
    gathered: list[Any] = [None] * WORLD
    dist.all_gather_object(gathered, s.given())
    shared: list[Any] = [s.given(which=1) if s.rank == 1 else None]
    dist.broadcast_object_list(shared, 1)
    rooted: list[Any] = [None] * WORLD
    dist.gather_object(s.given(which=2), rooted if s.rank == 2 else None, 2)
    dealt: list[Any] = [None]
    dist.scatter_object_list(dealt, [s.given(which=3 + i) for i in range(WORLD)] if s.rank == 0 else None, 0)
    sent: list[Any] = [s.given(which=9)]
    if s.rank == 0:
        dist.send_object_list(sent, 1)
    elif s.rank == 1:
        dist.recv_object_list(sent, 0)
    got = [*gathered, *shared, *(rooted if s.rank == 2 else []), *dealt, *sent]
    expected = [s.given(r) for r in range(WORLD)]
    expected.append(s.given(1, which=1))
    expected += [s.given(r, which=2) for r in range(WORLD)] if s.rank == 2 else []
    return got, [*expected, s.given(0, which=3 + s.rank), s.given(0 if s.rank == 1 else s.rank, which=9)]


@form
def functional_collectives(s: Sizes) -> tuple[Tensors, Tensors]:
    world = dist.group.WORLD
    got = [
        functional.all_reduce(s.given(), "sum", world),
        functional.all_gather_tensor(s.given(), 0, world),
        functional.reduce_scatter_tensor(s.given(n=WORLD * s.n), "sum", 0, world),
        functional.all_to_all_single(s.given(n=WORLD * s.n), None, None, world),
        functional.broadcast(s.given(), 2, world),
        *functional.all_reduce_coalesced([s.given(), s.given(which=1)], "sum", world),
    ]
    turned = [s.given(i, n=WORLD * s.n).split(s.n or 1)[s.rank if s.n else 0] for i in range(WORLD)]
    expected = [
        s.sum(),
        torch.cat([s.given(r) for r in range(WORLD)]),
        s.mine(s.sum(n=WORLD * s.n)),
        torch.cat(turned),
        s.given(2),
        s.sum(),
        s.sum(which=1),
    ]
    return [functional.wait_tensor(x) for x in got], expected


@pytest.mark.parametrize(
    ("n", "dtype"),
    [(0, torch.float32), (1, torch.float32), (5, torch.int64), (5, torch.bfloat16), (LARGE, torch.float32)],
    ids=["empty", "one", "int64", "bfloat16", "large"],
)
@pytest.mark.parametrize("name", FORMS)
def test_every_rank_ends_with_the_right_values(name: str, n: int, dtype: torch.dtype) -> None:
    def body() -> tuple[Tensors, Tensors]:
        dist.init_process_group("gloo")
        got, expected = FORMS[name](Sizes(n, dtype))
        dist.destroy_process_group()
        return got, expected

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        results = allranks.run(body, world_size=WORLD)
    assert len(results) == WORLD
    for rank, (got, expected) in enumerate(results):
        assert len(got) == len(expected) > 0
        for i, (a, b) in enumerate(zip(got, expected)):
            assert a.dtype == b.dtype == dtype
            assert torch.equal(a, b), f"rank {rank}, tensor {i} of {len(got)}"
