// Slices by tuples of coordinates: the tuples and what they name are read once, the output is written once.

template <typename T, typename I>
[[kernel]] void gather_nd(
    device const T* x [[buffer(0)]],
    device const I* indices [[buffer(1)]],
    device T* y [[buffer(2)]],
    constant TupleParams& params [[buffer(3)]],
    device atomic_uint* error_flag [[buffer(4)]],
    uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]])
{
    const ulong first = first_element(group, index), total = params.tuples * params.inner;
    if (first >= total) {
        return;
    }
    const Tuples<I> tuples = {{indices, error_flag}, &params};
    gather_rows(x, y, first, total, params.inner, tuples);
}
