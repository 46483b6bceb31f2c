"""torch's Python functions and the rest of `torch._C`, function by function where the module rules do not say it."""

from __future__ import annotations

from pliant.interpret.policy_tables.row import Row, skips

# `torch._jit_internal.boolean_dispatch` makes these; their globals do not tell where they belong.
DISPATCHED: list[Row] = [
    Row(
        "torch.nn.functional",
        "graph",
        "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d max_pool1d max_pool2d"
        " max_pool3d",
    ),
    Row("torch", "graph", "unique unique_consecutive lu"),
    Row(
        "torch.functional",
        "graph",
        "unique unique_consecutive lu _return_inverse_false _return_inverse_true _consecutive_return_inverse_false"
        " _consecutive_return_inverse_true",
    ),
    # it calls a function of the user
    Row("torch.nn.functional", "inline", "triplet_margin_with_distance_loss"),
    # it asks for data, and raises
    Row("torch.nn.functional", "inline", "gaussian_nll_loss"),
    Row("torch.nn.functional", "inline", "lp_pool1d lp_pool2d lp_pool3d"),  # ask whether the order is a number, and divide by it
    Row("torch.nn.functional", "inline", "upsample upsample_nearest upsample_bilinear"),  # old names of `interpolate`
    Row("torch.distributions.utils", "native", "_lazy_property_and_property", reads="arguments"),
    Row("torch.nn.functional", "native_python", "_is_integer _pair _single _triple _list_with_default", reads="arguments"),
]

TORCH: list[Row] = [
    Row(
        "torch",
        "symint",
        "sym_not sym_float sym_int sym_max sym_min sym_sum sym_sqrt sym_ite _sym_sqrt _sym_cos _sym_cosh _sym_sin _sym_sinh",
        reads="arguments",
    ),
    Row("torch", "symint", "_sym_tan _sym_tanh _sym_asin _sym_acos _sym_atan _sym_log2 _constrain_as_size", reads="arguments"),
    Row(
        "torch",
        "symint",
        "_check _check_index _check_value _check_type _check_not_implemented _check_with _check_is_size",
        reads="arguments",
    ),
    Row("torch", "graph", "_assert _check_tensor_all _check_tensor_all_with _as_tensor_fullprec"),
    Row("torch", "native_python", "typename is_tensor is_storage _get_origin _overload classproperty get_file_path", reads="arguments"),
    Row(
        "torch",
        "constant",
        "are_deterministic_algorithms_enabled is_deterministic_algorithms_warn_only_enabled get_deterministic_debug_mode"
        " get_default_device",
        reads="torch",
    ),
    Row("torch", "constant", "get_float32_matmul_precision is_warn_always_enabled _is_device_backend_autoload_enabled", reads="itself"),
    Row("torch", "constant", "_running_with_deploy compiled_with_cxx11_abi", reads="process"),
    Row("torch", "inline", "use_deterministic_algorithms"),
    Row("torch", "graph", "broadcast_shapes pca_lowrank svd_lowrank lobpcg"),
    Row("torch", "inline", "set_default_dtype"),
    *skips(
        "PL0037",
        "it sets a default of the whole process",
        {
            "torch": "set_default_device set_default_tensor_type set_deterministic_debug_mode set_float32_matmul_precision set_warn_always"
            " set_printoptions _register_device_module _sync _warn_typed_storage_removal prepare_multiprocessing_environment"
            " profiler_allow_cudagraph_cupti_lazy_reinit_cuda12"
        },
    ),
    *skips(
        "PL0022",
        "it loads libraries or files",
        {"torch": "_get_cuda_dep_paths _preload_cuda_lib _preload_cuda_deps _load_global_deps load save"},
    ),
    *skips("PL0022", "it loads libraries", {"torch": "_import_device_backends __getattr__"}),
    *skips(
        "PL0024", "it reads or sets the state of torch's generators", {"torch": "seed initial_seed"}
    ),
    *skips("PL0024", "it reads or sets the state of torch's generators", {"torch": "thread_safe_generator"}),
    Row("torch.random", "inline", "fork_rng"),
    Row("torch", "inline", "get_device_module"),
    *skips("PL0026", "it shares memory with another library", {"torch": "from_dlpack to_dlpack"}),
    *skips("PL0030", "it captures or transforms by itself", {"torch": "compile sym_fresh_size _disable_dynamo"}),
    *skips("PL0003", "deprecated: it only raises", {"torch": "symeig eig lstsq matrix_rank solve"}),
]

CONSTANTS: list[Row] = [
    Row("torch.jit", "constant", "is_scripting is_tracing", reads="capture"),
    Row("torch.jit", "constant", "onednn_fusion_enabled", reads="itself"),
    Row("torch._jit_internal", "constant", "is_scripting", reads="capture"),
    Row("torch.jit._script", "inline", "_unwrap_optional"),
    Row("torch.jit", "native_python", "annotate isinstance export ignore unused script_if_tracing", reads="arguments"),
    Row("torch.compiler", "constant", "is_compiling is_dynamo_compiling is_exporting _is_non_strict_tracing", reads="capture"),
    Row("torch._dynamo.external_utils", "constant", "is_compiling", reads="capture"),
    Row("torch._utils", "constant", "is_compiling", reads="capture"),
    Row("torch.onnx", "constant", "is_in_onnx_export", reads="itself"),
    Row("torch.autograd", "constant", "_is_checkpoint_valid", reads="itself"),
    Row("torch.nn.modules.activation", "constant", "_is_make_fx_tracing", reads="capture"),
    Row("torch.fx._symbolic_trace", "constant", "is_fx_tracing is_fx_symbolic_tracing", reads="capture"),
    Row(
        "torch.distributed",
        "constant",
        "is_available is_nccl_available is_gloo_available is_mpi_available is_ucc_available is_xccl_available",
        reads="process",
    ),
    Row("torch.distributed", "constant", "is_torchelastic_launched get_rank get_world_size get_backend is_initialized", reads="itself"),
    Row("torch._utils", "inline", "_maybe_view_chunk_cat"),
    Row(
        "torch.cuda",
        "constant",
        "is_available device_count is_bf16_supported is_initialized get_device_capability get_device_name current_device",
        reads="itself",
    ),
    Row("torch.cuda", "constant", "get_arch_list get_gencode_flags _is_compiled", reads="process"),
    Row("torch.cuda", "constant", "get_device_properties is_tf32_supported _get_device_index", reads="device"),
    Row("torch.cuda._utils", "constant", "_get_device_index", reads="device"),
    Row(
        "torch.cpu",
        "constant",
        "is_available is_initialized device_count current_device _is_avx2_supported _is_avx512_supported _is_avx512_bf16_supported"
        " _is_vnni_supported _is_amx_tile_supported _is_amx_fp16_supported",
        reads="process",
    ),
    Row("torch.xpu", "constant", "is_available device_count is_initialized is_bf16_supported", reads="itself"),
    Row("torch.mps", "constant", "is_available device_count", reads="itself"),
    Row("torch.backends.mps", "constant", "is_available is_built is_macos_or_newer", reads="process"),
    Row("torch.mtia", "constant", "is_available device_count is_initialized is_bf16_supported", reads="itself"),
    Row("torch.accelerator", "constant", "is_available current_accelerator device_count current_device_index", reads="itself"),
    Row(
        "torch.backends.cuda",
        "constant",
        "flash_sdp_enabled mem_efficient_sdp_enabled math_sdp_enabled cudnn_sdp_enabled",
        reads="itself",
    ),
    Row("torch.backends.cuda", "constant", "fp16_bf16_reduction_math_sdp_allowed", reads="itself"),
    Row("torch.backends.cuda", "constant", "is_built is_flash_attention_available is_ck_sdpa_available", reads="process"),
    Row("torch.backends.cuda", "symint", "can_use_flash_attention can_use_efficient_attention can_use_cudnn_attention", reads="kernels"),
    Row("torch.backends.mkldnn", "constant", "is_available", reads="process"),
    Row("torch.backends.mkl", "constant", "is_available", reads="process"),
    Row("torch.backends.openmp", "constant", "is_available", reads="process"),
    Row("torch.backends.cudnn", "constant", "is_available version", reads="process"),
    Row("torch.backends.cudnn", "constant", "is_acceptable", reads="kernels"),
    Row("torch.utils.data", "constant", "get_worker_info", reads="itself"),
    Row("torch._higher_order_ops.utils", "constant", "_in_hop_compile", reads="capture"),
    Row("torch.autograd.profiler", "constant", "_is_profiler_enabled", reads="itself"),
    Row("torch.overrides", "inline", "_get_overloaded_args is_tensor_like"),
    Row("torch.overrides", "symint", "has_torch_function handle_torch_function", reads="arguments"),
]

MODULES: list[Row] = [
    # state of a module beyond plain attributes
    *skips(
        "PL0027",
        "hooks on tensors or modules change what a call means",
        {
            "torch.nn.Module": "register_forward_hook register_forward_pre_hook register_full_backward_hook register_full_backward_pre_hook"
            " register_backward_hook register_state_dict_pre_hook register_state_dict_post_hook register_load_state_dict_pre_hook"
            " register_load_state_dict_post_hook _register_state_dict_hook _register_load_state_dict_pre_hook",
        },
    ),
    *skips(
        "PL0006",
        "it replaces the tensors of a module",
        {
            "torch.nn.Module": "to _apply to_empty cuda cpu xpu ipu mtia half float double bfloat16 type share_memory"
            " compile",
            "torch.optim.Optimizer": "state_dict load_state_dict add_param_group __setstate__",
        },
    ),
    *skips("PL0020", "it starts the autograd engine", {"torch.autograd": "backward gradcheck gradgradcheck"}),
    # its `__enter__` and `__exit__` are lookasides
    Row("torch.autograd.profiler", "inline", "record_function"),
    Row("torch.autograd.profiler.record_function", "inline", "__call__ _recreate_cm"),
    Row("torch.autograd", "graph", "grad"),
    Row(
        "torch._C._FunctionBase",
        "symint",
        "apply mark_dirty mark_non_differentiable save_for_backward set_materialize_grads",
        reads="arguments",
    ),
    Row("torch.nn.parameter", "native_python", "is_lazy", reads="arguments"),
    Row("torch.autograd.graph.saved_tensors_hooks", "inline", "__init__ __enter__ __exit__"),
    Row("torch.autograd.graph.save_on_cpu", "inline", "__init__"),
    Row("torch.autograd.graph", "inline", "saved_tensors_hooks save_on_cpu disable_saved_tensors_hooks"),
    Row("torch._functorch.utils", "native_python", "unwrap_dead_wrappers", reads="arguments"),
    Row(
        "torch.utils.checkpoint",
        "native_python",
        "get_device_states set_device_states check_backward_validity noop_context_fn",
        reads="arguments",
    ),
    *skips("PL0019", "you asked for it", {"torch._dynamo": "graph_break", "torch._dynamo.decorators": "graph_break"}),
    # their `__enter__` and `__exit__` are in `compiler_settings.py`
    Row("torch._dynamo.decorators", "inline", "error_on_graph_break ErrorOnGraphBreakDecoratorContextManager DynamoConfigPatchProxy"),
    Row("torch._dynamo.decorators.ErrorOnGraphBreakDecoratorContextManager", "inline", "__init__ __call__"),
    Row("torch._dynamo.decorators.DynamoConfigPatchProxy", "inline", "__init__ __call__"),
    Row("torch._dynamo.decorators", "native_python", "patch_dynamo_config dont_skip_tracing", reads="arguments"),
    *skips("PL0030", "another compiler's notes about modules", {"torch._dynamo.mutation_guard.GenerationTracker": "tag"}),
    *skips("PL0021", "you excluded it from compilation", {"torch._dynamo": "disable", "torch.compiler": "disable"}),
]

# torch._C beside the operators ------------------------------------------------------------------------------------------------
# compared by every graph's guards
OF_GRAPHS = (
    "is_grad_enabled is_inference_mode_enabled get_default_dtype is_autocast_cache_enabled is_autocast_cpu_enabled"
    " get_autocast_cpu_dtype get_autocast_gpu_dtype _is_any_autocast_enabled _get_default_device _get_deterministic_algorithms"
    " _get_deterministic_algorithms_warn_only _get_deterministic_fill_uninitialized_memory _is_torch_function_enabled"
    " _is_torch_function_all_disabled _is_torch_function_mode_enabled _len_torch_function_stack _len_torch_dispatch_stack"
    " _are_functorch_transforms_active _get_torch_function_state _meta_in_tls_dispatch_include"
)
# likewise, for the CPU and CUDA
OF_AUTOCAST = (
    "is_autocast_enabled get_autocast_dtype"
)
# as it is while capturing
OF_CAPTURING = (
    "_get_tracing_state _is_tracing _current_graph_task_id _current_autograd_node"
)
# how PyTorch was built, and the machine
OF_THE_PROCESS = (
    "_is_autocast_available _supported_qengines _is_xnnpack_enabled _get_all_dtypes _is_flash_attention_available"
    " _get_blas_default_backend _is_ck_sdpa_available _has_distributed _show_config _get_cpu_capability _cxx_flags"
    " _autocast_supported_devices"
)
# settings, which may change: asked again by the guards of each call
STATE_READERS = (
    "is_autocast_xla_enabled get_autocast_xla_dtype is_autocast_ipu_enabled get_autocast_ipu_dtype is_anomaly_enabled"
    " is_anomaly_check_nan_enabled get_num_threads get_num_interop_threads _get_float32_matmul_precision _get_cudnn_enabled"
    " _get_cudnn_benchmark _get_cudnn_deterministic _get_cudnn_allow_tf32 _get_mkldnn_enabled _get_mkldnn_deterministic"
    " _get_nnpack_enabled _get_onednn_allow_tf32 _get_flash_sdp_enabled _get_fa3_sdp_enabled _get_mem_efficient_sdp_enabled"
    " _get_math_sdp_enabled _get_overrideable_sdp_enabled _get_cudnn_sdp_enabled _get_math_sdp_allow_fp16_bf16_reduction"
    " _get_sdp_priority_order _get_cublas_allow_tf32 _get_cublas_allow_fp16_reduced_precision_reduction"
    " _get_cublas_allow_bf16_reduced_precision_reduction _get_cublas_allow_fp16_accumulation"
    " _get_cpu_allow_fp16_reduced_precision_reduction _get_cudnn_depthwise_kernel _get_miopen_immediate _is_fwd_grad_enabled"
    " _is_multithreading_enabled _is_view_replay_enabled _is_grad_layout_enforcement_enabled _get_warnAlways _get_qengine"
    " _check_sparse_tensor_invariants _get_privateuse1_backend_name _only_lift_cpu_tensors _get_linalg_preferred_backend"
    " _get_blas_preferred_backend _get_rocm_fa_preferred_backend _get_sm_carveout_experimental _get_fp32_precision_getter"
    " _get_accelerator _parallel_info _jit_get_profiling_mode _get_autograd_fallback_mode _get_backcompat_broadcast_warn"
    " _get_backcompat_keepdim_warn _accelerator_getAccelerator _accelerator_hooks_device_count"
)
# They run during the capture; `globalstate` restores what they set and the emitted code sets it again.
STATE_WRITERS = (
    "_set_grad_enabled set_autocast_enabled set_autocast_dtype set_autocast_cpu_enabled set_autocast_cpu_dtype"
    " set_autocast_gpu_dtype set_autocast_cache_enabled autocast_increment_nesting autocast_decrement_nesting clear_autocast_cache"
    " _set_deterministic_algorithms _log_api_usage_once _log_api_usage_metadata _set_sdp_use_flash _set_sdp_use_mem_efficient"
    " _set_sdp_use_math _set_sdp_use_cudnn _set_sdp_use_overrideable _set_sdp_priority_order"
    " _set_multithreading_enabled _set_view_replay_enabled"
)
# which kernels PyTorch would choose
CHOICES = (
    "_select_conv_backend _can_use_flash_attention _can_use_mem_efficient_attention _can_use_cudnn_attention"
    " _select_batch_norm_backend _get_cudnn_batch_norm_reserve_space_size _conv_determine_backend_memory_format"
)
PREDICATES = (
    "_has_torch_function _has_torch_function_unary _has_torch_function_variadic _has_storage"
    " _any_requires_grad _will_engine_execute_node _dispatch_key_for_device"
    " _should_allow_numbers_as_tensors _get_schema _get_operation_overload _jit_get_operation"
    " _demangle"
    " _disabled_torch_function_impl _add_docstr _jit_is_script_object _is_key_in_tls"
    " _is_cached_tensor _get_nested_int _non_sym_sizes _get_constant_bool_symnode"
)

TORCH_C: list[Row] = [
    Row("torch._C", "constant", OF_GRAPHS, reads="torch"),
    Row("torch._C", "constant", OF_AUTOCAST, reads="autocast"),
    Row("torch._C", "constant", OF_CAPTURING, reads="capture"),
    Row("torch._C", "constant", OF_THE_PROCESS, reads="process"),
    Row("torch._C", "constant", STATE_READERS, reads="itself"),
    Row("torch._C", "native", STATE_WRITERS, reads="writes"),
    Row("torch._C", "symint", CHOICES, reads="kernels"),
    Row("torch._C", "constant", "_dispatch_has_kernel _dispatch_has_kernel_for_dispatch_key", reads="itself"),
    Row("torch._C", "symint", PREDICATES, reads="arguments"),  # none asks for memory or dispatch keys: what stands for a tensor has others
    *skips("PL0037", "it sets how many threads PyTorch uses", {"torch": "init_num_threads"}),
    *skips("PL0004", "an internal function of torch that nobody has vouched for", {"torch._C": "*"}),
    *skips("PL0030", "a function transform captures by itself", {"torch._C._functorch": "*"}),
    Row("torch._C._autograd", "constant", "_profiler_enabled _profiler_type", reads="itself"),
    *skips("PL0033", "a profiler or a part of the autograd engine", {"torch._C._autograd": "*", "torch._C._profiler": "*"}),
    *skips("PL0020", "it runs the autograd engine", {"torch._C._ImperativeEngine": "*"}),
    *skips("PL0028", "a collective", {"torch._C._distributed_c10d": "*"}),
    *skips("PL0037", "it changes which dispatch keys are on", {
        f"torch._C.{t}": "*" for t in "DisableTorchFunction DisableTorchFunctionSubclass _DisableTorchDispatch _EnableTorchFunction".split()
    }),
]  # fmt: skip

# Functions of other libraries that their modules' rules do not fit.
LIBRARIES: list[Row] = [
    # caches of what a pattern means, which depends on the pattern alone; sizes may be symbols
    Row("einops.einops", "inline", "_prepare_transformation_recipe _reconstruct_from_shape _compactify_pattern_for_einsum"),
    Row("einops._backends", "native_python", "get_backend", reads="arguments"),
    Row("transformers.utils.import_utils", "inline", "torch_compilable_check"),  # it calls functions of the model
    # containers taken apart: they have been read, leaves are passed on, and what code of the program does there is interpreted
    Row("optree._C", "symint", "flatten flatten_with_path is_leaf make_leaf make_none", reads="trees"),
    Row("optree._C", "symint", "is_namedtuple is_namedtuple_class is_namedtuple_instance namedtuple_fields", reads="arguments"),
    Row("optree._C", "symint", "is_structseq is_structseq_class is_structseq_instance structseq_fields", reads="arguments"),
    Row(
        "optree._C.PyTreeSpec",
        "symint",
        "unflatten flatten_up_to children child entries entry is_leaf is_one_level one_level compose paths accessors is_prefix is_suffix"
        " num_leaves num_nodes num_children none_is_leaf namespace type kind __eq__ __ne__ __len__",
        reads="trees",
    ),
]

ROWS: list[Row] = DISPATCHED + TORCH + CONSTANTS + MODULES + TORCH_C + LIBRARIES
