// Tensors made of nothing: the output is written once.

template <typename T>
[[kernel]] void fill(
    device T* y [[buffer(0)]],
    constant FillParams& params [[buffer(1)]],
    uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]])
{
    const ulong first = first_element(group, index);
    if (first >= params.count) {
        return;
    }
    Block<T> block;
    for (uint i = 0; i < SLOTS; ++i) {
        block.at[i] = T(params.bits);
    }
    store_block(y + first, block, elements_from(first, params.count));
}
