"""Every private name of torch that isolation relies on; `test_isolation_names.py` says which torch lost one."""

from __future__ import annotations

C10D = "torch.distributed.distributed_c10d"
WORLD = "_world"
#: Tables of `distributed_c10d` that are changed in place.
C10D_TABLES = ("_pg_map", "_pg_names", "_pg_group_ranks", "_pg_backend_config", "_tags_to_pg", "_pg_to_tag")
#: Names of it that are rebound.
C10D_VALUES = ("_group_count", "_backend", "_default_pg_init_method")
#: Of `torch._C._distributed_c10d`: the groups that C++ finds by name.
THREAD_ISOLATION = "_set_thread_isolation_mode"
REGISTER_GROUP = "_register_process_group"
UNREGISTER_GROUP = "_unregister_process_group"
UNREGISTER_ALL = "_unregister_all_process_groups"
#: Setters of `torch._C` whose state is process-wide, without `_set_`; the getter is `_get_` and the same.
C_FLAGS = (
    "autograd_fallback_mode",
    "backcompat_broadcast_warn",
    "backcompat_keepdim_warn",
    "blas_preferred_backend",
    "cublas_allow_bf16_reduced_precision_reduction",
    "cublas_allow_fp16_accumulation",
    "cublas_allow_fp16_reduced_precision_reduction",
    "cublas_allow_tf32",
    "cublaslt_prefer_grouped_gemm",
    "cudnn_allow_tf32",
    "cudnn_benchmark",
    "cudnn_deterministic",
    "cudnn_enabled",
    "deterministic_fill_uninitialized_memory",
    "float32_matmul_precision",
    "linalg_preferred_backend",
    "miopen_immediate",
    "math_sdp_allow_fp16_bf16_reduction",
    "mkldnn_deterministic",
    "mkldnn_enabled",
    "nnpack_enabled",
    "onednn_allow_tf32",
    "qengine",
    "sdp_priority_order",
    "warnAlways",
)
#: The same, in newer torch only.
NEWER_C_FLAGS = ("native_aot_enabled", "native_aot_unconditional_masked")
#: The same where setter and getter have unlike names: setter, getter.
C_FLAG_PAIRS = (
    ("_set_sdp_use_cudnn", "_get_cudnn_sdp_enabled"),
    ("_set_sdp_use_flash", "_get_flash_sdp_enabled"),
    ("_set_sdp_use_math", "_get_math_sdp_enabled"),
    ("_set_sdp_use_mem_efficient", "_get_mem_efficient_sdp_enabled"),
    ("_set_sdp_use_overrideable", "_get_overrideable_sdp_enabled"),
    ("_set_check_sparse_tensor_invariants", "_check_sparse_tensor_invariants"),
    ("_set_override_stale_capture_stream", "_override_stale_capture_stream"),
    ("_set_warn_on_accumulate_grad_stream_mismatch", "_warn_on_accumulate_grad_stream_mismatch"),
)
#: Cached functions whose answers depend on the rank: module, names.
RANK_CACHES = {
    "torch.utils._pytree": ("treespec_loads",),
    "torch.distributed.tensor._redistribute": ("_gen_transform_infos",),
}
#: Module-level state that differs between ranks, by module: private as soon as the module is imported.
RANK_STATE = {
    "torch.distributed._shard.api": ("_CURRENT_PROCESS_GROUP",),
    "torch.distributed._shard.sharded_tensor.api": ("_sharded_tensor_current_id", "_sharded_tensor_map"),
    "torch.distributed._symmetric_memory": ("_group_name_to_store", "_group_name_to_workspace_tensor"),
    "torch.distributed.checkpoint._async_process_executor": ("_CHECKPOINT_PROCESS",),
    "torch.distributed.tensor._random": ("_rng_tracker",),
    "torch.distributed.tensor._redistribute": (
        "_planner_cache",
        "_warned_flatten_issues",
        "_FORCE_MIN_COST_REDISTRIBUTION_PLAN",
        "_DISABLE_REDISTRIBUTE_TRANSFORM_OPTIMIZATION",
    ),
    "torch.distributed.tensor.experimental._context_parallel._attention": (
        "_cp_options",
        "_dispatch_mode",
        "_replaced_functions",
    ),
    "torch.nn.utils.parametrize": ("_cache", "_cache_enabled"),
    "torch.utils._python_dispatch": (
        "_is_in_torch_dispatch_mode",
        "_is_in_non_infra_torch_dispatch_mode",
        "_is_in_any_mode_without_ignore_compile_internals",
    ),
    "torch.utils.checkpoint": ("_enable_checkpoint_early_stop", "_checkpoint_debug_enabled"),
}
#: Hooks for all modules: private from the first call of one of the functions on.
MODULE_HOOKS = "torch.nn.modules.module"
MODULE_HOOK_SETTERS = (
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
)
#: Attributes, of an object found from a module, that differ between ranks: module, path of the object, names.
RANK_ATTRIBUTES = (("torch.distributed.tensor._api", "DTensor._op_dispatcher", ("_custom_op_handlers",)),)

#: The class of the tables of `torch.library` that hold fake kernels: module, object, its table.
OPERATOR_ENTRIES = ("torch._library.simple_registry", "singleton", "_data")
#: Methods of `torch.library.Library` that change an entry of it; the operator's name comes first.
ENTRY_CHANGERS = (
    "_register_fake",
    "_register_torch_dispatch_rule",
    "_register_effectful_op",
    "register_symm_mem_args",
)
#: Dispatch keys behind which there is no other kernel.
BACKEND_KEYS = ("CPU", "CUDA", "Meta", "SparseCPU", "SparseCUDA", "QuantizedCPU", "MPS", "XPU", "PrivateUse1")
#: Files of torch, by how their paths begin, that register what somebody else asks for.
REGISTRARS = (
    "_custom_op/",
    "_decomp/__init__.py",
    "_inductor/decomposition.py",
    "_library/",
    "_ops.py",
    "_weights_only_unpickler.py",
    "distributions/kl.py",
    "library.py",
    "serialization.py",
    "utils/_pytree.py",
)
#: A function that enters something into the table that is its first argument: module, name.
DECOMPOSITIONS = ("torch._decomp", "_add_op_to_registry")
#: Functions that enter something into tables of their module: module, functions, tables, and whether the tables are
#: bound anew or ordered, so that a rank has a whole one of its own.
REGISTRATIONS = (
    ("copyreg", ("pickle",), ("dispatch_table",), False),
    ("copyreg", ("add_extension", "remove_extension"), ("_extension_registry", "_inverted_registry"), False),
    (
        "torch._weights_only_unpickler",
        ("_add_safe_globals", "_clear_safe_globals", "_remove_safe_globals"),
        ("_marked_safe_globals_set",),
        True,
    ),
    ("torch.distributions.kl", ("register_kl",), ("_KL_REGISTRY", "_KL_MEMOIZE"), True),
    ("torch.serialization", ("register_package",), ("_package_registry",), True),
    (
        "torch.utils._pytree",
        ("_private_register_pytree_node", "_deregister_pytree_node"),
        ("SUPPORTED_NODES", "SUPPORTED_SERIALIZED_TYPES", "SERIALIZED_TYPE_TO_PYTHON_TYPE"),
        False,
    ),
)


def in_backward() -> bool:
    """Whether the autograd engine runs on this thread."""
    import torch

    return torch._C._current_graph_task_id() != -1
