// Single elements along an axis, by an index for each: all are read once, the output is written once.

template <typename T, typename I>
[[kernel]] void gather_elements(
    device const T* x [[buffer(0)]],
    device const I* indices [[buffer(1)]],
    device T* y [[buffer(2)]],
    constant GatherElementsParams& params [[buffer(3)]],
    device atomic_uint* error_flag [[buffer(4)]],
    uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]])
{
    const ulong first = first_element(group, index);
    if (first >= params.space.count) {
        return;
    }
    const Run run(params.space, first);
    long at[SLOTS];
    locate(params.space, params.x, run, at);
    const Indices<I> of = {indices, error_flag};
    Block<T> block;
    for (uint i = 0; i < SLOTS; ++i) {
        const ulong entry = i < run.count ? of.resolve(first + i, params.extent) : OUTSIDE;
        block.at[i] = entry == OUTSIDE ? T(0) : x[at[i] + long(entry * params.stride)];
    }
    store(y, run, block);
}
