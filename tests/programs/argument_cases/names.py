"""Questions about groups and backends, before, during and after the default group's life."""

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d


def asked():
    """What libraries ask of torch.distributed."""
    cpu = torch.device("cpu")
    world = c10d._get_default_group
    return {
        "is_available": dist.is_available,
        "is_initialized": dist.is_initialized,
        "is_gloo_available": dist.is_gloo_available,
        "is_torchelastic_launched": dist.is_torchelastic_launched,
        "backend_available": lambda: [dist.is_backend_available(b) for b in ("gloo", "GLOO", "fake", "nonsense")],
        "get_rank": dist.get_rank,
        "get_world_size": dist.get_world_size,
        "get_backend": dist.get_backend,
        "backend_type": lambda: type(dist.get_backend()).__name__,
        "backend_equal": lambda: [dist.get_backend() == "gloo", dist.get_backend() == dist.Backend.GLOO],
        "get_backend_config": dist.get_backend_config,
        "get_backend_impl": lambda: c10d.get_backend_impl() is not None,
        "default_backend": lambda: dist.get_default_backend_for_device("cpu"),
        "pg_count": dist.get_pg_count,
        "node_local_rank": lambda: dist.get_node_local_rank(fallback_rank=7) == dist.get_rank(),
        "world": lambda: dist.group.WORLD is world(),
        "member": lambda: [dist.GroupMember.WORLD is world(), dist.GroupMember.NON_GROUP_MEMBER],
        "types": lambda: sorted(map(str, world()._device_types)),
        "group_name": lambda: world().group_name,
        "group_desc": lambda: world().group_desc,
        "bound_device": lambda: world().bound_device_id,
        "name": lambda: world().name(),
        "size": lambda: [world().size(), world().rank() == dist.get_rank()],
        "pg_class": lambda: type(world()).__name__,
        "is_pg": lambda: isinstance(world(), dist.ProcessGroup),
        "backend_name": lambda: world()._get_backend(cpu).name(),
        "backend_size": lambda: [(b := world()._get_backend(cpu)).size(), b.rank() == dist.get_rank()],
        "backend_is": lambda: (
            isinstance(world()._get_backend(cpu), c10d._c10d_backend_type)
            if hasattr(c10d, "_c10d_backend_type")
            else None
        ),
        "backend_cuda": lambda: world()._get_backend(torch.device("cuda")) is not None,
        "options_timeout": lambda: world()._get_backend(cpu).options._timeout,
        "options_backend": lambda: world()._get_backend(cpu).options.backend,
        "options": lambda: [(o := world()._get_backend(cpu).options).group_name, o.global_ranks_in_group],
        "supports": lambda: [
            (b := world()._get_backend(cpu)).supports_splitting,
            b.supports_coalescing,
            b.supports_shrinking,
        ],
        "pg_config": lambda: {k: v for k, v in c10d._get_pg_config().items() if k in ("pg_name", "pg_desc", "ranks")},
        "pg_info": lambda: sorted(c10d._world.pg_config_info[0]),
        "pg_map": lambda: [c10d._world.pg_map[world()][0], type(c10d._world.pg_map[world()][1]).__name__],
        "store": lambda: type(c10d._get_default_store()).__name__,
        "object_device": lambda: c10d._get_object_coll_device(),
        "default_device": lambda: c10d._get_pg_default_device(),
        "capability": lambda: c10d._device_capability(),
        "tag": lambda: c10d._get_group_tag(world()),
        "process_group_name": lambda: c10d._get_process_group_name(world()),
        "uid": lambda: type(c10d._get_process_group_uid(world())).__name__,
        "debug_level": lambda: str(dist.get_debug_level()),
        "resolve": lambda: c10d._resolve_process_group(world().group_name) is world(),
        "group_ranks": lambda: c10d._world.pg_group_ranks[world()],
        "process_group_ranks": lambda: dist.get_process_group_ranks(world()),
        "process_group_ranks_none": lambda: dist.get_process_group_ranks(None),
        "group_rank": lambda: dist.get_group_rank(world(), 1),
        "group_rank_wrong": lambda: dist.get_group_rank(world(), 99),
        "global_rank": lambda: dist.get_global_rank(world(), 1),
        "global_rank_wrong": lambda: dist.get_global_rank(world(), 99),
        "time_estimate": lambda: c10d._time_estimator().__enter__(),
        "hash": lambda: len({world(), world()}),
        "repr": lambda: repr(world()).split(" at ")[0].split(" object")[0],
        "backends": lambda: [b in dist.Backend.backend_list for b in ("gloo", "nccl", "fake")],
        "backend_names": lambda: [dist.Backend.GLOO, dist.Backend.NCCL, dist.Backend("GLOO"), dist.Backend("foo")],
        "backend_wrong": lambda: dist.Backend(3),
        "environment": lambda: (
            {k: os.environ.get(k) for k in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_NAME", "ROLE_RANK")}
            if "never" in sys.argv
            else [os.environ["WORLD_SIZE"] == str(dist.get_world_size()), os.environ["RANK"] == str(dist.get_rank())]
        ),
        "timeout_default": lambda: c10d._get_default_timeout("gloo"),
        "has_hooks": lambda: world()._has_hooks(),
        "group_count": lambda: type(c10d._world.group_count).__name__,
        "use": lambda: dist.all_reduce(torch.ones(1)),
        "use_object": lambda: dist.all_gather_object([None], 1),
        "new_group": lambda: dist.new_group([0]) if not dist.is_initialized() else None,
        "init_twice": lambda: dist.init_process_group("gloo") if dist.is_initialized() else None,
        "destroy_wrong": lambda: dist.destroy_process_group("nonsense"),
        "set_timeout": lambda: dist.set_timeout("x") if hasattr(dist, "set_timeout") else "raised TypeError",
    }


def before_init(show):
    rank = os.environ["RANK"]
    for name, ask in asked().items():
        if name in ("is_torchelastic_launched", "environment"):
            continue
        try:
            text = show(ask())
        except Exception as e:
            text = f"raised {type(e).__name__}"
        sys.stdout.write(f"rank {rank}: before/{name} {text}\n")
    for name, how in {
        "backend": {"backend": "nonsense"},
        "timeout": {"backend": "gloo", "timeout": 3},
        "method": {"backend": "gloo", "init_method": "nonsense://"},
        "rank_alone": {"backend": "gloo", "store": dist.HashStore()},
        "both": {"backend": "gloo", "store": dist.HashStore(), "init_method": "env://", "rank": 0, "world_size": 1},
    }.items():
        try:
            text = show(dist.init_process_group(**how))
        except Exception as e:
            text = f"raised {type(e).__name__}"
        sys.stdout.write(f"rank {rank}: before/init_{name} {text}\n")
        sys.stdout.flush()


def after_destroy(t):
    for name, ask in asked().items():
        if name not in ("is_torchelastic_launched", "environment"):
            t(f"after/{name}", ask)


def run(t):
    for name, ask in asked().items():
        t(f"ask/{name}", ask)
