"""Object collectives without peers: every peer holds what this rank holds, whatever the fill rule.

| function | what happens |
|---|---|
| all_gather_object | N copies of the object |
| gather_object | N copies on the destination, nothing elsewhere |
| broadcast_object_list | the list stays as it is: the source holds the same |
| scatter_object_list | this rank's entry of the input list if one was given, else the output list stays as it is |
| send_object_list | kept until the next one on the group |
| recv_object_list | what was last sent on the group, if the lists are equally long, else the list stays as it is |

Copies go through pickle, as they do between processes.
"""

from __future__ import annotations

import functools
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from allranks.one_rank import private
from allranks.one_rank.backend import OneRankBackend
from allranks.one_rank.patches import Patches
from allranks.one_rank.session import backend_of

_sent: weakref.WeakKeyDictionary[OneRankBackend, list[bytes]] = weakref.WeakKeyDictionary()


def _count(backend: OneRankBackend, kind: str, bytes_: int) -> None:
    """What torch would issue: a message of sizes and one of bytes."""
    backend.note(kind, "int64", 1)
    backend.note(kind, "uint8", bytes_)


def all_gather_object(
    backend: OneRankBackend, object_list: list[Any], obj: Any, group: Any = None, weights_only: bool = False
) -> None:
    data = pickle.dumps(obj)
    _count(backend, "all_gather", len(data))
    for rank in range(backend.size()):
        object_list[rank] = pickle.loads(data)


def gather_object(
    backend: OneRankBackend,
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
    weights_only: bool = False,
) -> None:
    if dst is None and group_dst is None:
        dst = 0
    root = private.group_rank(group or dist.group.WORLD, dst, group_dst)
    if root != backend.rank() and object_gather_list:
        raise ValueError("Argument ``object_gather_list`` must NOT be specified on non-destination ranks.")
    if root == backend.rank() and not object_gather_list:
        raise ValueError("Argument ``object_gather_list`` must be specified on destination rank.")
    data = pickle.dumps(obj)
    backend.note("all_gather", "int64", 1)
    backend.note("gather", "uint8", len(data))
    for rank in range(backend.size() if object_gather_list else 0):
        object_gather_list[rank] = pickle.loads(data)  # type: ignore[index]


def broadcast_object_list(
    backend: OneRankBackend,
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
    weights_only: bool = False,
) -> None:
    private.group_rank(group or dist.group.WORLD, 0 if src is None and group_src is None else src, group_src)
    _count(backend, "broadcast", len(pickle.dumps(object_list)))


def scatter_object_list(
    backend: OneRankBackend,
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
    weights_only: bool = False,
) -> None:
    root = private.group_rank(group or dist.group.WORLD, 0 if src is None and group_src is None else src, group_src)
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    if root == backend.rank() and scatter_object_input_list is None:
        raise ValueError("source rank must provide non-None scatter_object_input_list")
    backend.note("broadcast", "int64", 1)
    data = b""
    if scatter_object_input_list and len(scatter_object_input_list) == backend.size():
        data = pickle.dumps(scatter_object_input_list[backend.rank()])
        scatter_object_output_list[0] = pickle.loads(data)
    backend.note("scatter", "uint8", len(data))
    backend.note("scatter", "int64", 1)


def send_object_list(backend: OneRankBackend, object_list: list[Any], *args: Any, **kwargs: Any) -> None:
    data = [pickle.dumps(obj) for obj in object_list]
    _sent[backend] = data
    _count(backend, "send", sum(map(len, data)))


def recv_object_list(
    backend: OneRankBackend,
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
    weights_only: bool = False,
    use_batch: bool = False,
) -> int:
    group = group or dist.group.WORLD
    given = src is not None or group_src is not None
    source = private.group_rank(group, src, group_src) if given else backend.any_source()
    data = _sent.get(backend, [])
    if len(data) == len(object_list):
        object_list[:] = [pickle.loads(d) for d in data]
    _count(backend, "recv", 0)
    return dist.get_global_rank(group, source)


def install(patches: Patches) -> None:
    """Groups of other backends keep torch's functions."""
    for ours, argument in (
        (all_gather_object, 2),
        (gather_object, 3),
        (broadcast_object_list, 2),
        (scatter_object_list, 3),
        (send_object_list, 2),
        (recv_object_list, 2),
    ):
        original = getattr(dist, ours.__name__)
        replacement = _replacement(original, ours, argument)
        for module in private.public_modules():
            patches.set(module, ours.__name__, replacement)


def _replacement(original: Callable[..., Any], ours: Callable[..., Any], argument: int) -> Callable[..., Any]:
    """`argument`: the position of `group`."""

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        backend = backend_of(kwargs.get("group", args[argument] if len(args) > argument else None))
        return original(*args, **kwargs) if backend is None else ours(backend, *args, **kwargs)

    return function
