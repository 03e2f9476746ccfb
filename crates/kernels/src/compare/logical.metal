// The opposite of truth values, which are bytes 0 and 1.

template <typename T>
[[kernel]] void logical_not(
    device const T* x [[buffer(0)]],
    device T* y [[buffer(1)]],
    constant NotParams& params [[buffer(2)]],
    uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]])
{
    const ulong first = first_element(group, index);
    if (first >= params.space.count) {
        return;
    }
    const Run run(params.space, first);
    Elements<T> block = load(x, params.space, params.x, run);
    for (uint i = 0; i < SLOTS; ++i) {
        block.at[i] = pack<T>(!unpack<T>(block.at[i]));
    }
    store(y, run, block);
}
