"""torch's operators: C functions of torch's namespaces, and the methods and attributes of tensors.

Everything in these namespaces is an operator of the graph, except the names that are listed.
"""

from __future__ import annotations

from pliant.interpret.policy_tables.row import Row, rows, skips

# What they read is metadata of the tensor or of dtypes: answered at once, nothing is recorded.
METADATA_FUNCTIONS = (
    "is_floating_point is_complex is_signed is_conj is_neg is_inference is_distributed is_same_size is_vulkan_available promote_types"
    " result_type can_cast numel get_device _is_zerotensor _has_compatible_shallow_copy_type _debug_has_internal_overlap _nnpack_available"
    " cudnn_is_acceptable _use_cudnn_ctc_loss _use_miopen_ctc_loss _use_cudnn_rnn_flatten_weight _fused_sdp_choice _is_functional_tensor"
    " _is_functional_tensor_base _assert_tensor_metadata sym_constrain_range sym_constrain_range_for_size _cufft_get_plan_cache_size"
    " _cufft_get_plan_cache_max_size"
)

SPARSE = (
    "sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor sparse_compressed_tensor _coalesce"
    " _convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo _indices_copy _values_copy indices_copy values_copy"
    " ccol_indices_copy"
    " col_indices_copy crow_indices_copy row_indices_copy _sparse_broadcast_to _sparse_broadcast_to_copy _sparse_csr_prod _sparse_csr_sum"
    " _sparse_log_softmax_backward_data _sparse_softmax_backward_data _sparse_semi_structured_addmm _sparse_semi_structured_apply"
    " _sparse_semi_structured_apply_dense _sparse_semi_structured_linear _sparse_semi_structured_mm _sparse_semi_structured_tile"
    " _sparse_sparse_matmul _sparse_sum _to_sparse_semi_structured _validate_compressed_sparse_indices _validate_sparse_bsc_tensor_args"
    " _validate_sparse_bsr_tensor_args _validate_sparse_compressed_tensor_args _validate_sparse_coo_tensor_args"
    " _validate_sparse_csc_tensor_args _validate_sparse_csr_tensor_args resize_as_sparse_ hspmm sspaddmm hsmm dsmm smm saddmm spmm"
)
NESTED = (
    "_nested_compute_contiguous_strides_offsets _nested_from_padded _nested_from_padded_and_nested_example _nested_from_padded_tensor"
    " _nested_get_jagged_dummy _nested_get_lengths _nested_get_max_seqlen _nested_get_min_seqlen _nested_get_offsets _nested_get_ragged_idx"
    " _nested_get_values _nested_get_values_copy _nested_tensor_from_mask _nested_tensor_from_mask_left_aligned"
    " _nested_tensor_from_tensor_list _nested_tensor_softmax_with_shape _nested_view_from_buffer _nested_view_from_buffer_copy"
    " _nested_view_from_jagged _nested_view_from_jagged_copy"
)
QUANTIZED = (
    "quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic _make_per_channel_quantized_tensor"
    " _make_per_tensor_quantized_tensor _empty_affine_quantized _empty_per_channel_affine_quantized empty_quantized int_repr"
    " dequantize q_scale"
    " q_zero_point q_per_channel_axis q_per_channel_scales q_per_channel_zero_points quantized_batch_norm quantized_gru_cell"
    " quantized_lstm_cell quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d quantized_rnn_relu_cell quantized_rnn_tanh_cell"
    " fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation fbgemm_linear_int8_weight"
    " fbgemm_linear_int8_weight_fp32_activation fbgemm_linear_quantize_weight fbgemm_pack_gemm_matrix_fp16 fbgemm_pack_quantized_matrix"
    " _wrapped_linear_prepack _wrapped_quantized_linear_prepacked"
)
FUNCTIONALIZE = (
    "_disable_functionalization _enable_functionalization _freeze_functional_tensor _from_functional_tensor _to_functional_tensor"
    " _functionalize_are_all_mutations_hidden_from_autograd _functionalize_are_all_mutations_under_no_grad_or_inference_mode"
    " _functionalize_commit_update _functionalize_enable_reapply_views _functionalize_get_storage_size _functionalize_has_data_mutation"
    " _functionalize_has_metadata_mutation _functionalize_inductor_storage_resized_counter _functionalize_is_multi_output_view"
    " _functionalize_is_symbolic _functionalize_mark_mutation_hidden_from_autograd _functionalize_mark_storage_changed"
    " _functionalize_mutation_counter _functionalize_replace _functionalize_storage_changed_counter _functionalize_sync"
    " _functionalize_unsafe_set _functionalize_was_inductor_storage_resized _functionalize_was_storage_changed _mirror_autograd_meta_to"
    " _add_batch_dim _remove_batch_dim _make_dual _make_dual_copy _unpack_dual _fw_primal_copy"
)

FUNCTIONS: list[Row] = [
    Row("torch._C._VariableFunctions", "symint", METADATA_FUNCTIONS, reads="arguments"),
    Row("torch", "symint", "_is_functional_tensor _is_functional_tensor_base", reads="arguments"),
    *skips(
        "PL0026",
        "its result shares memory with something that is not a tensor",
        {"torch._C._VariableFunctions": "from_file from_numpy frombuffer _from_blob asarray", "torch": "from_numpy from_file frombuffer"},
    ),
    *skips(
        "PL0039",
        "it changes which memory a tensor uses",
        {"torch._C._VariableFunctions": "resize_as_ _resize_output_ _lazy_clone _copy_from_and_resize detach_"},
    ),
    *skips(
        "PL0034",
        "sparse, nested and quantized tensors are not captured",
        {"torch._C._VariableFunctions": f"{SPARSE} {NESTED} {QUANTIZED}", "torch._C._nested": "*", "torch._C._sparse": "*"},
    ),
    *skips(
        "PL0030", "it belongs to torch's own tracers and transforms", {"torch._C._VariableFunctions": FUNCTIONALIZE, "torch": FUNCTIONALIZE}
    ),
    *skips("PL0005", "it prints", {"torch._C._VariableFunctions": "_print"}),
    *skips(
        "PL0037", "it changes a cache of cuFFT", {"torch._C._VariableFunctions": "_cufft_clear_plan_cache _cufft_set_plan_cache_max_size"}
    ),
    Row("torch._C._VariableFunctions", "graph", "__and__ __or__ __xor__ __lshift__ __rshift__"),
    *rows("graph", {f"torch._C.{s}": "*" for s in ("_VariableFunctions", "_nn", "_linalg", "_fft", "_special")}),
]

METADATA_METHODS = (
    "size dim stride numel nelement ndimension is_contiguous is_floating_point is_complex is_signed element_size storage_offset get_device"
    " is_conj is_neg is_inference is_same_size is_pinned is_coalesced is_distributed is_set_to _is_zerotensor dense_dim sparse_dim"
    " qscheme has_names sym_size sym_stride sym_numel sym_storage_offset dim_order __len__ __hash__ is_shared"
)
MEMORY_METHODS = (
    "set_ resize_ resize_as_ resize_as_sparse_ sparse_resize_ sparse_resize_and_clear_ untyped_storage data_ptr const_data_ptr _lazy_clone"
)
SPARSE_METHODS = (
    "_coalesced_ _dimI _dimV _indices _nnz _values _sparse_mask_projection _to_dense _to_sparse _to_sparse_bsc _to_sparse_bsr"
    " _to_sparse_csc"
    " _to_sparse_csr ccol_indices coalesce col_indices crow_indices indices row_indices smm sparse_mask sspaddmm to_dense to_mkldnn"
    " to_sparse"
    " to_sparse_bsc to_sparse_bsr to_sparse_csc to_sparse_csr values"
)
NESTED_METHODS = "_nested_tensor_size _nested_tensor_storage_offsets _nested_tensor_strides to_padded_tensor"
QUANTIZED_METHODS = "dequantize int_repr q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point"
AUTOGRAD_METHODS = (
    "_view_func _view_func_unsafe _rev_view_func_unsafe _fix_weakref _use_count _make_subclass _make_wrapper_subclass"
    " _dtensor__new__ as_subclass _is_view"
)

WORKS_ON_MEMORY = (  # and does not ask whether there is any
    "_sobol_engine_draw _sobol_engine_ff_ _sobol_engine_initialize_state_ _sobol_engine_scramble_ _saturate_weight_to_fp16"
)

TENSOR_C: list[Row] = [
    Row("torch._C.TensorBase", "symint", METADATA_METHODS, reads="arguments"),
    *skips("PL0039", "it changes or shows which memory a tensor uses", {"torch._C.TensorBase": MEMORY_METHODS + " detach_"}),
    *skips(
        "PL0034", "sparse, nested and quantized tensors are not captured", {"torch._C.TensorBase": f"{SPARSE_METHODS} {NESTED_METHODS}"}
    ),
    *skips("PL0034", "quantized tensors are not captured", {"torch._C.TensorBase": QUANTIZED_METHODS}),
    *skips("PL0026", "a tensor is handed to NumPy", {"torch._C.TensorBase": "numpy"}),
    *skips("PL0003", "it calls a Python function for each element", {"torch._C.TensorBase": "apply_ map_ map2_"}),
    *skips("PL0012", "it changes how autograd sees the tensor", {"torch._C.TensorBase": "requires_grad_ retain_grad"}),
    *skips("PL0039", "it works on the memory of a tensor, which has none while capturing", {"torch": WORKS_ON_MEMORY}),
    *skips("PL0011", "it makes a tensor of another class or looks inside autograd", {"torch._C.TensorBase": AUTOGRAD_METHODS + " __new__"}),
    *skips("PL0029", "it acts on a stream or on pinned memory", {"torch._C.TensorBase": "record_stream pin_memory"}),
    Row("torch._C.TensorBase", "graph", "*"),
    *skips("PL0039", "it changes which memory a tensor uses", {"torch.Tensor": "detach_"}),
    Row("torch.Tensor", "graph", "detach __itruediv__ __pos__ __neg__ __abs__"),
]

# Python methods of torch.Tensor; each calls C operators.
TENSOR_PYTHON: list[Row] = [
    Row(
        "torch.Tensor",
        "graph",
        "norm solve lstsq eig symeig lu stft istft split unique unique_consecutive __rsub__ __rdiv__ __rtruediv__ __pow__ __ipow__ __rmod__"
        " __rpow__ __floordiv__ __rfloordiv__ __rlshift__ __rrshift__ __rmatmul__ __iter__ __reversed__ __contains__ unflatten",
    ),
    Row("torch.Tensor", "symint", "__len__ __hash__ is_shared dim_order", reads="arguments"),
    *skips("PL0020", "it starts the autograd engine", {"torch.Tensor": "backward reinforce"}),
    *skips("PL0027", "a hook runs whenever the gradient is computed", {"torch.Tensor": "register_hook register_post_accumulate_grad_hook"}),
    *skips("PL0026", "the tensor is handed to another library", {"torch.Tensor": "__array__ __array_wrap__ __dlpack__ __dlpack_device__"}),
    *skips(
        "PL0039", "it works on the tensor's storage", {"torch.Tensor": "storage _typed_storage storage_type share_memory_ resize resize_as"}
    ),
    *skips("PL0039", "it works on the tensor's storage", {"torch.Tensor": "module_load"}),
    *skips(
        "PL0022",
        "it serializes or copies the whole object",
        {"torch.Tensor": "__reduce_ex__ _reduce_ex_internal __setstate__ __deepcopy__", "torch.nn.Parameter": "__reduce_ex__"},
    ),
    *skips("PL0005", "the text of a tensor needs its data", {"torch.Tensor": "__repr__ __format__"}),
    *skips("PL0007", "it reads the whole object at once", {"torch.Tensor": "__dir__ _clear_non_serializable_cached_data index"}),
    *skips("PL0034", "sparse tensors are not captured", {"torch.Tensor": "to_sparse_coo"}),
    *skips("PL0011", "torch calls it, programs do not", {"torch.Tensor": "__torch_function__ __torch_dispatch__"}),
]

SMALL_TYPES: list[Row] = [
    Row("torch", "symint", "Size", reads="arguments"),
    Row("torch", "native", "device finfo iinfo dtype layout memory_format qscheme", reads="arguments"),
    *rows(
        "native", {f"torch.{t}": "*" for t in ("device", "dtype", "finfo", "iinfo", "layout", "memory_format", "qscheme")},
        reads="arguments",
    ),
    *rows("symint", {f"torch.{t}": "*" for t in ("Size", "SymInt", "SymFloat", "SymBool")}, reads="arguments"),
    Row("torch", "symint", "SymInt SymFloat SymBool", reads="arguments"),
    *skips("PL0024", "a generator's state is outside the graph", {"torch": "Generator", "torch.Generator": "*"}),
    *skips("PL0029", "streams and events order work on a device", {"torch": "Stream Event", "torch.Stream": "*", "torch.Event": "*"}),
    *skips("PL0029", "streams and events order work on a device", {"torch.cuda": "Stream ExternalStream Event CUDAGraph graph MemPool"}),
    *skips("PL0011", "a tensor is made through a class", {"torch": "Tensor", "torch.nn": "Parameter Buffer UninitializedParameter"}),
    *skips(
        "PL0038",
        "TorchScript runs by itself",
        {"torch.jit": "ScriptFunction ScriptModule CompilationUnit", "torch._C": "ScriptMethod ScriptObject"},
    ),
    *skips("PL0039", "storages are not captured", {"torch._C.StorageBase": "*", "torch": "UntypedStorage TypedStorage"}),
]

ROWS: list[Row] = FUNCTIONS + TENSOR_C + TENSOR_PYTHON + SMALL_TYPES
