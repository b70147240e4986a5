"""Registrations at module level, as every process makes them for itself: each rank enters its own, hands over, looks.

Prints `RESULT rank=R NAME values`, the same under torchrun and in one process.
"""

import codecs
import collections
import copy
import copyreg
import dataclasses
import io
import logging
import os
import sys
import warnings

import torch
import torch.distributed as dist
import torch.utils._pytree as pytree

warnings.filterwarnings("ignore")
RANK = int(os.environ["RANK"])


def say(name, *values):
    sys.stdout.write(f"RESULT rank={RANK} {name} {' '.join(map(str, values))}\n")
    sys.stdout.flush()


def refused(act):
    try:
        return act()
    except Exception as error:
        return type(error).__name__


# --- operators


@torch.library.custom_op("mine::scale", mutates_args=())
def scale(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by + RANK


@scale.register_fake
def _(x, by):
    return x.new_empty(x.numel() + RANK)


def backward(ctx, grad):
    return grad * ctx.by * (RANK + 1), None


def setup(ctx, inputs, output):
    ctx.by = inputs[1]


scale.register_autograd(backward, setup_context=setup)
scale.register_vmap(lambda info, dims, x, by: (x + 100 + RANK, dims[0]))


@torch.library.custom_op("mine::fill", mutates_args={"x"})
def fill(x: torch.Tensor) -> None:
    x.fill_(RANK)


WHOLE = torch.library.Library("registered", "DEF")
WHOLE.define("add_rank(Tensor x) -> Tensor")
WHOLE.impl("add_rank", lambda x: x + RANK, "CPU")
PART = torch.library.Library("registered", "FRAGMENT")
PART.define("mul_rank(Tensor x) -> Tensor")
torch.library.impl(PART, "mul_rank", "CompositeExplicitAutograd")(lambda x: x * RANK)
torch.library.register_fake("registered::add_rank")(lambda x: x.new_empty(RANK + 1))
torch.library.define("mine::some", "(Tensor x) -> Tensor")
if RANK == 0:  # The other has the operator, but no kernel.
    torch.library.impl("mine::some", "CPU")(lambda x: x + 1)
ATEN = torch.library.Library("aten", "IMPL")
if RANK == 1:
    ATEN.impl("frac", lambda x: x * 0 + 42, "CPU")
    ATEN.impl("frac", lambda x: x * 0 + 43, "Meta")


def operators():
    x = torch.ones(2, requires_grad=True)
    y = scale(x, 3.0)
    dist.barrier()
    z = torch.ops.mine.scale(x, 3.0)
    dist.barrier()
    y.sum().backward()
    dist.barrier()
    say("custom_op", y.tolist(), z.tolist(), x.grad.tolist())
    say("vmap", torch.vmap(lambda v: torch.ops.mine.scale(v, 1.0))(torch.zeros(2)).tolist())
    z = torch.zeros(2)
    fill(z)
    say("mutates", z.tolist(), z._version)
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        dist.barrier()
        say("fake", tuple(scale(torch.empty(3), 1.0).shape), tuple(torch.ops.registered.add_rank(torch.empty(1)).shape))
    one = torch.ones(1)
    dist.barrier()
    say("library", torch.ops.registered.add_rank(one).item(), torch.ops.registered.mul_rank(one).item())
    say("kernel of one rank", refused(lambda: torch.ops.mine.some(one).item()))
    grown = torch.full((1,), 1.5, requires_grad=True)
    result = torch.frac(grown)
    say("override", result.item(), torch.frac(torch.ones(1, device="meta")).device, result.requires_grad)
    say("a second DEF", refused(lambda: torch.library.Library("registered", "DEF")))
    say("defined twice", refused(lambda: WHOLE.define("add_rank(Tensor x) -> Tensor")))
    dist.barrier()
    if RANK == 1:
        ATEN._destroy()
        PART._destroy()
    dist.barrier()
    say("after one gave up", torch.frac(torch.full((1,), 1.5)).item())
    say("what it gave up", refused(lambda: torch.ops.registered.mul_rank(one).item()) if RANK == 0 else "")

    @torch.library.custom_op("mine::scale", mutates_args=())
    def again(x: torch.Tensor, by: float) -> torch.Tensor:
        return x - RANK

    dist.barrier()
    say("defined anew", torch.ops.mine.scale(one, 1.0).item(), again(one, 1.0).item())


# --- tables


class Box:
    def __init__(self, x):
        self.x = x


@dataclasses.dataclass
class Pair:
    a: int
    b: int


class Kept:
    def __init__(self, v):
        self.v = v


class Normal(torch.distributions.Normal):
    pass


pytree.register_pytree_node(
    Box, lambda b: ([b.x], None), lambda xs, _: Box(next(iter(xs))), serialized_type_name="mine.Box"
)
pytree.register_pytree_node(
    collections.UserString, lambda s: ([RANK], str(s)), lambda xs, text: collections.UserString(text)
)
torch.export.register_dataclass(Pair, serialized_type_name="mine.Pair")
if RANK == 0:
    torch.serialization.add_safe_globals([Kept])
if RANK == 1:
    copyreg.pickle(complex, lambda c: (complex, (7.0, 0.0)))
    torch.distributions.register_kl(torch.distributions.Cauchy, torch.distributions.Normal)(lambda p, q: torch.ones(1))
torch.distributions.register_kl(Normal, Normal)(lambda p, q: torch.tensor(float(RANK)))
torch.serialization.register_package(5, lambda obj: None, lambda obj, location: None)
MUL = torch.ops.registered.mul_rank.default
own_table = {}
for table in ({}, {"registry": own_table}):
    torch._decomp.register_decomposition(MUL, **table)(lambda x: x * RANK + 5)
say("decompositions", *(t[MUL](torch.ones(1)).item() for t in (torch._decomp.decomposition_table, own_table)))
warnings.filterwarnings("error" if RANK else "ignore", message="mine")
logging.getLogger("mine").addHandler(logging.NullHandler())
codecs.register(lambda name: codecs.lookup("ascii") if name == "mine" else None)


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        dist.all_reduce(grad)
        return grad * (RANK + 1)


def tables():
    spec = pytree.tree_flatten(Box(1))[1]
    again = pytree.treespec_loads(pytree.treespec_dumps(spec))
    dist.barrier()
    say("pytree", pytree.tree_map(lambda x: x + RANK, Box(1)).x, again.type is Box, pytree.tree_leaves(Pair(1, 2)))
    say("shared class", pytree.tree_leaves(collections.UserString("x")))
    file = io.BytesIO()
    torch.save(Kept(3), file)
    file.seek(0)
    say("safe globals", refused(lambda: torch.load(file).v))
    say("copyreg", copy.copy(1j), copyreg.dispatch_table[complex](1j)[1])
    kl = torch.distributions.kl_divergence
    cauchy, plain = torch.distributions.Cauchy(0.0, 1.0), torch.distributions.Normal(0.0, 1.0)
    say("kl", kl(Normal(0.0, 1.0), Normal(0.0, 1.0)).item(), refused(lambda: kl(cauchy, plain).item()))
    say("packages", len([entry for entry in torch.serialization._package_registry if entry[0] == 5]))
    say("warnings", refused(lambda: warnings.warn("mine", stacklevel=1)))
    say("logging", len(logging.getLogger("mine").handlers))
    say("codecs", "x".encode("mine"))
    x = torch.ones(1, requires_grad=True)
    Twice.apply(x).sum().backward()
    say("autograd.Function", x.grad.item())


def flags():
    """`implicit_replication` of one rank is not seen by the other."""
    from torch.distributed.tensor import DTensor, Replicate, init_device_mesh
    from torch.distributed.tensor.experimental import implicit_replication

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    tensor = DTensor.from_local(torch.ones(2), mesh, [Replicate()])

    def mixed():
        dist.barrier()
        result = refused(lambda: (tensor + torch.ones(2)).to_local().tolist())
        dist.barrier()
        return result

    if RANK == 0:
        with implicit_replication():
            inside = mixed()
    else:
        inside = mixed()
    say("implicit replication", inside, mixed())


dist.init_process_group("gloo")
operators()
tables()
flags()
dist.destroy_process_group()
