// Functions of three tensors, broadcast: each is read once, the output is written once.

template <typename T>
[[kernel]] void fused_multiply_add(
    device const T* a [[buffer(0)]],
    device const T* b [[buffer(1)]],
    device const T* c [[buffer(2)]],
    device T* y [[buffer(3)]],
    constant TernaryParams& params [[buffer(4)]],
    uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]])
{
    const ulong first = first_element(group, index);
    if (first >= params.space.count) {
        return;
    }
    const Run run(params.space, first);
    Elements<T> block = load(a, params.space, params.operands[0], run);
    const Elements<T> factor = load(b, params.space, params.operands[1], run);
    const Elements<T> term = load(c, params.space, params.operands[2], run);
    for (uint i = 0; i < SLOTS; ++i) {
        block.at[i] = pack<T>(fma(unpack<T>(block.at[i]), unpack<T>(factor.at[i]), unpack<T>(term.at[i])));
    }
    store(y, run, block);
}

template <typename T>
[[kernel]] void choose(
    device const bool* condition [[buffer(0)]],
    device const T* a [[buffer(1)]],
    device const T* b [[buffer(2)]],
    device T* y [[buffer(3)]],
    constant TernaryParams& params [[buffer(4)]],
    uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]])
{
    const ulong first = first_element(group, index);
    if (first >= params.space.count) {
        return;
    }
    const Run run(params.space, first);
    const Elements<bool> chosen = load(condition, params.space, params.operands[0], run);
    Elements<T> block = load(a, params.space, params.operands[1], run);
    const Elements<T> other = load(b, params.space, params.operands[2], run);
    for (uint i = 0; i < SLOTS; ++i) {
        block.at[i] = unpack<bool>(chosen.at[i]) ? block.at[i] : other.at[i];
    }
    store(y, run, block);
}
