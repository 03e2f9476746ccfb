// Any strided view to any strided destination, in the destination's order: one read and one write.

template <typename T>
[[kernel]] void copy(
    device const T* x [[buffer(0)]],
    device T* y [[buffer(1)]],
    constant CopyParams& params [[buffer(2)]],
    uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]])
{
    const ulong first = first_element(group, index);
    if (first >= params.space.count) {
        return;
    }
    const Run run(params.space, first);
    const Block<T> block = load(x, params.space, params.from, run);
    if (run.is_whole() && inner_step(params.space, params.to) == 1) {
        store_block(y + (row_start(params.space, params.to, run.row) + long(run.column)), block, SLOTS);
        return;
    }
    long at[SLOTS];
    locate(params.space, params.to, run, at);
    for (uint i = 0; i < SLOTS; ++i) {
        if (i < run.count) {
            y[at[i]] = block.at[i];
        }
    }
}
