"""Groups of some ranks: how they are made, asked, used, destroyed."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d


def questions(group, t):
    return {
        "is_member": lambda: group is not dist.GroupMember.NON_GROUP_MEMBER,
        "rank": lambda: dist.get_rank(group),
        "size": lambda: dist.get_world_size(group),
        "ranks": lambda: dist.get_process_group_ranks(group),
        "group_rank": lambda: [dist.get_group_rank(group, r) for r in dist.get_process_group_ranks(group)],
        "global_rank": lambda: [dist.get_global_rank(group, r) for r in range(dist.get_world_size(group))],
        "group_rank_of_0": lambda: dist.get_group_rank(group, 0),
        "global_rank_of_9": lambda: dist.get_global_rank(group, 9),
        "backend": lambda: dist.get_backend(group),
        "config": lambda: dist.get_backend_config(group),
        "desc": lambda: group.group_desc,
        "name_type": lambda: type(group.group_name).__name__,
        "pg_size": lambda: [group.size(), group.rank()],
        "timeout": lambda: group._get_backend(torch.device("cpu")).options._timeout,
        "option_ranks": lambda: group._get_backend(torch.device("cpu")).options.global_ranks_in_group,
        "tag": lambda: c10d._get_group_tag(group),
    }


def uses(group, t):
    rank, world = t.rank, t.world

    def reduce():
        x = torch.ones(2) * (rank + 1)
        return [dist.all_reduce(x, group=group), x]

    def gather():
        out = [torch.zeros(1) for _ in range(max(1, dist.get_world_size(group)))]
        return [dist.all_gather(out, torch.full((1,), float(rank)), group=group), out]

    def broadcast(root):
        x = torch.full((1,), float(rank))
        return [dist.broadcast(x, root, group=group), x]

    def broadcast_group(root):
        x = torch.full((1,), float(rank))
        return [dist.broadcast(x, group=group, group_src=root), x]

    def scatter():
        x = torch.zeros(1)
        first = dist.get_rank(group) == 0
        parts = [torch.full((1,), float(i)) for i in range(dist.get_world_size(group))] if first else None
        return [dist.scatter(x, parts, group=group, group_src=0), x]

    def exchange():
        size = dist.get_world_size(group)
        x = torch.zeros(max(1, size))
        return [dist.all_to_all_single(x, torch.arange(float(max(1, size))) + 10 * rank, group=group), x]

    def gather_scalars():
        out = [[torch.zeros(()), torch.zeros(())] for _ in range(max(1, dist.get_world_size(group)))]
        dist.all_gather_coalesced(out, [torch.tensor(float(rank)), torch.tensor(5.0)], group=group)
        return out

    found = {
        "all_reduce": reduce,
        "all_gather": gather,
        "all_gather_coalesced": gather_scalars,
        "scatter": scatter,
        "all_to_all_single": exchange,
        "barrier": lambda: dist.barrier(group=group),
        "monitored_barrier": lambda: dist.monitored_barrier(group=group),
    }
    for root in (0, world - 1, 9, -1):
        found[f"broadcast/{root}"] = lambda root=root: broadcast(root)
    for root in (0, 9, -1):
        found[f"broadcast_group/{root}"] = lambda root=root: broadcast_group(root)
    found["broadcast/both"] = lambda: dist.broadcast(torch.ones(1), 0, group=group, group_src=0)
    found["broadcast/neither"] = lambda: dist.broadcast(torch.ones(1), group=group)
    found["reduce/neither"] = lambda: dist.reduce(torch.ones(1), group=group)
    return found


def kinds(t):
    n = t.world
    everyone = list(range(n))
    return {
        "none": {},
        "all": {"ranks": everyone},
        "reversed": {"ranks": everyone[::-1]},
        "unsorted": {"ranks": everyone[::-1], "sort_ranks": False},
        "pair": {"ranks": [n - 1, 0]},
        "pair_unsorted": {"ranks": [n - 1, 0], "sort_ranks": False},
        "alone": {"ranks": [1]},
        "tuple": {"ranks": tuple(everyone)},
        "range": {"ranks": range(n)},
        "empty": {"ranks": []},
        "duplicates": {"ranks": [0, 0, 1]},
        "outside": {"ranks": [0, n]},
        "negative": {"ranks": [-1, 0]},
        "strings": {"ranks": ["0", "1"]},
        "too_many": {"ranks": [*everyone, *everyone]},
        "desc": {"ranks": everyone, "group_desc": "mine"},
        "timeout": {"ranks": everyone, "timeout": timedelta(seconds=77)},
        "bad_timeout": {"ranks": everyone, "timeout": 77},
        "backend": {"ranks": everyone, "backend": "gloo"},
        "backends": {"ranks": everyone, "backend": "cpu:gloo"},
        "bad_backend": {"ranks": everyone, "backend": "nonsense"},
        "local": {"ranks": everyone, "use_local_synchronization": True},
        "local_alone": {"ranks": [t.rank], "use_local_synchronization": True},
        "local_none": {"use_local_synchronization": True},
        "local_outside": {"ranks": [(t.rank + 1) % n], "use_local_synchronization": True},
        "device": {"ranks": everyone, "device_id": torch.device("cpu")},
    }


def made(t, name, how):
    box = []

    def make():
        box.append(dist.new_group(**how))
        return type(box[0]).__name__

    t(f"new_group/{name}", make)
    if not box:
        return
    for question, ask in questions(box[0], t).items():
        t(f"new_group/{name}/ask/{question}", ask)
    for use, attempt in uses(box[0], t).items():
        t(f"new_group/{name}/use/{use}", attempt)
    dist.barrier()


def destroyed(t):
    group = dist.new_group(list(range(t.world)))
    work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
    work.wait()
    t("destroy", lambda: dist.destroy_process_group(group))
    for question, ask in questions(group, t).items():
        t(f"destroy/ask/{question}", ask)
    t("destroy/twice", lambda: dist.destroy_process_group(group))
    t("destroy/python_use", lambda: dist.all_reduce(torch.ones(1), group=group))
    t("destroy/non_member", lambda: dist.destroy_process_group(dist.GroupMember.NON_GROUP_MEMBER))
    t("destroy/others", lambda: dist.all_reduce(torch.ones(1)))


def divided(t):
    """new_subgroups, split_group, meshes."""
    n, rank = t.world, t.rank

    def subgroups(**how):
        mine, every = dist.new_subgroups(**how)
        x = torch.ones(1) * rank
        dist.all_reduce(x, group=mine)
        return [len(every), dist.get_process_group_ranks(mine), x]

    t("subgroups/1", lambda: subgroups(group_size=1))
    t("subgroups/n", lambda: subgroups(group_size=n))
    t("subgroups/too_large", lambda: subgroups(group_size=n + 1))
    t("subgroups/0", lambda: subgroups(group_size=0))

    def listed(lists):
        mine, every = dist.new_subgroups_by_enumeration(lists)
        return [len(every), None if mine is None else dist.get_process_group_ranks(mine)]

    t("enumerated", lambda: listed([[r] for r in range(n)]))
    t("enumerated/partly", lambda: listed([[1, 0]]))
    t("enumerated/twice", lambda: listed([[0, 1], [1, 0]]))
    t("enumerated/none", lambda: dist.new_subgroups_by_enumeration(None))

    def split(lists, **how):
        group = dist.split_group(split_ranks=lists, **how)
        if group is None or isinstance(group, int):
            return group
        x = torch.ones(1) * (rank + 1)
        dist.all_reduce(x, group=group)
        return [dist.get_process_group_ranks(group), dist.get_rank(group), x, group.group_desc]

    t("split", lambda: split([[0, 1], list(range(2, n))] if n > 2 else [[0, 1]]))
    t("split/reversed", lambda: split([list(range(n))[::-1]]))
    t("split/partly", lambda: split([[0, 1]]))
    t("split/none", lambda: split(None))
    t("split/empty", lambda: split([]))
    t("split/overlap", lambda: split([[0, 1], [1]]))

    def mesh(shape, names=None):
        m = dist.device_mesh.init_device_mesh("cpu", shape, mesh_dim_names=names)
        x = torch.ones(1) * (rank + 1)
        dist.all_reduce(x, group=m.get_group(0))
        return [m.get_coordinate(), m.get_local_rank(0), m.size(), x, m.get_group(0).group_desc]

    t("mesh/1d", lambda: mesh((n,)))
    t("mesh/2d", lambda: mesh((n, 1), ("a", "b")))
    t("mesh/other", lambda: mesh((1, n), ("a", "b")))
    t("mesh/wrong", lambda: mesh((n + 1,)))
    t("mesh/names", lambda: mesh((n, 1), ("a", "a")))


def found(t):
    """Groups found by ranks and tag, as DTensor and functional collectives look for them."""
    ranks = list(range(t.world))
    t("find/world", lambda: c10d._find_pg_by_ranks_and_tag("", ranks) is not None)
    t("find/nonsense", lambda: c10d._find_pg_by_ranks_and_tag("no", ranks))
    t(
        "find/create",
        lambda: dist.get_process_group_ranks(c10d._find_or_create_pg_by_ranks_and_tag("t1", ranks, t.world)),
    )
    t("find/by_name", lambda: c10d._resolve_process_group("nonsense"))
    t("timeout/set", lambda: c10d._set_pg_timeout(timedelta(seconds=55)))
    t("timeout/got", lambda: c10d._get_default_group()._get_backend(torch.device("cpu")).options._timeout)


def run(t):
    for name, how in kinds(t).items():
        made(t, name, how)
    destroyed(t)
    divided(t)
    found(t)
