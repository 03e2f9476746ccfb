"""Operators of PyTorch's whose results IEEE 754 fixes, or that only move elements: the same bits on the CPU and on CUDA."""

EXACT = frozenset(
    f"aten::{name}"
    for name in """
    alias as_strided clone contiguous copy_ _to_copy detach expand permute select slice split split_with_sizes squeeze t transpose unbind unsqueeze view
    _unsafe_view _reshape_alias unfold diagonal unsafe_split lift_fresh lift_fresh_copy view_as_real view_as_complex movedim
    cat stack repeat flip roll constant_pad_nd slice_backward select_backward tril triu slice_scatter select_scatter as_strided_scatter
    empty empty_like empty_strided new_empty new_empty_strided zeros zeros_like new_zeros ones ones_like new_ones full full_like new_full zero_ fill_
    scalar_tensor arange _local_scalar_dense is_same_size equal _has_same_storage_numel resize_ set_ record_stream
    embedding index index_select gather masked_fill masked_fill_ where masked_select nonzero scatter.src take
    neg neg_ abs abs_ sign relu relu_ threshold_backward clamp clamp_ clamp_min clamp_max maximum minimum max min amax amin sgn
    eq ne lt le gt ge isnan isinf isfinite logical_not logical_and logical_or any all
    floor ceil round trunc floor_ ceil_ round_ trunc_ sqrt sqrt_ reciprocal
    """.split()
)
