// Rows along an axis by index: the indices and what they name are read once, the output is written once.

template <typename I>
struct Entries {
    Indices<I> indices;
    ulong count;
    ulong extent;

    ulong find(ulong row) const {
        const Division place = division(row, count);
        const ulong entry = indices.resolve(place.remainder, extent);
        return entry == OUTSIDE ? OUTSIDE : place.quotient * extent + entry;
    }
};

template <typename T, typename I>
[[kernel]] void gather(
    device const T* x [[buffer(0)]],
    device const I* indices [[buffer(1)]],
    device T* y [[buffer(2)]],
    constant GatherParams& params [[buffer(3)]],
    device atomic_uint* error_flag [[buffer(4)]],
    uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]])
{
    const ulong first = first_element(group, index), total = params.outer * params.count * params.inner;
    if (first >= total) {
        return;
    }
    const Entries<I> entries = {{indices, error_flag}, params.count, params.extent};
    gather_rows(x, y, first, total, params.inner, entries);
}
