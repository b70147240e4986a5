"""Every private name of torch that isolation relies on; `tests/python/test_isolation_names.py` says which torch lost one."""

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
    "backcompat_broadcast_warn",
    "backcompat_keepdim_warn",
    "blas_preferred_backend",
    "cublas_allow_bf16_reduced_precision_reduction",
    "cublas_allow_fp16_accumulation",
    "cublas_allow_fp16_reduced_precision_reduction",
    "cublas_allow_tf32",
    "cudnn_allow_tf32",
    "cudnn_benchmark",
    "cudnn_deterministic",
    "cudnn_enabled",
    "deterministic_fill_uninitialized_memory",
    "float32_matmul_precision",
    "linalg_preferred_backend",
    "math_sdp_allow_fp16_bf16_reduction",
    "mkldnn_deterministic",
    "mkldnn_enabled",
    "nnpack_enabled",
    "onednn_allow_tf32",
    "qengine",
    "warnAlways",
)
#: The same where setter and getter have unlike names: setter, getter.
C_FLAG_PAIRS = (
    ("_set_sdp_use_cudnn", "_get_cudnn_sdp_enabled"),
    ("_set_sdp_use_flash", "_get_flash_sdp_enabled"),
    ("_set_sdp_use_math", "_get_math_sdp_enabled"),
    ("_set_sdp_use_mem_efficient", "_get_mem_efficient_sdp_enabled"),
    ("_set_sdp_use_overrideable", "_get_overrideable_sdp_enabled"),
    ("_set_check_sparse_tensor_invariants", "_check_sparse_tensor_invariants"),
)
