// Comparisons of two tensors, broadcast; truth values are bytes 0 and 1.

template <typename Op, typename T>
[[kernel]] void compare(
    device const T* a [[buffer(0)]],
    device const T* b [[buffer(1)]],
    device bool* y [[buffer(2)]],
    constant BinaryParams& params [[buffer(3)]],
    uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]])
{
    const ulong first = first_element(group, index);
    if (first >= params.space.count) {
        return;
    }
    const Run run(params.space, first);
    const Elements<T> left = load(a, params.space, params.a, run);
    const Elements<T> right = load(b, params.space, params.b, run);
    Elements<bool> holds;
    for (uint i = 0; i < SLOTS; ++i) {
        holds.at[i] = pack<bool>(Op::apply(unpack<T>(left.at[i]), unpack<T>(right.at[i])));
    }
    store(y, run, holds);
}
