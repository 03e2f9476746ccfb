// min(max(x, min), max), broadcast; a bound is a tensor or one value. Each tensor is read once, the output is written once.

template <typename T>
inline Elements<T> load_bound(device const T* bounds, constant ClampParams& params, uint which, Run run) {
    if (params.is_tensor[which] != 0) {
        return load(bounds, params.space, params.bounds[which], run);
    }
    Elements<T> block;
    for (uint i = 0; i < SLOTS; ++i) {
        block.at[i] = typename Stored<T>::type(params.values[which]);
    }
    return block;
}

template <typename T>
[[kernel]] void clamp_between(
    device const T* x [[buffer(0)]],
    device const T* min [[buffer(1)]],
    device const T* max [[buffer(2)]],
    device T* y [[buffer(3)]],
    constant ClampParams& params [[buffer(4)]],
    uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]])
{
    const ulong first = first_element(group, index);
    if (first >= params.space.count) {
        return;
    }
    const Run run(params.space, first);
    Elements<T> block = load(x, params.space, params.x, run);
    const Elements<T> lows = load_bound(min, params, 0, run);
    const Elements<T> highs = load_bound(max, params, 1, run);
    for (uint i = 0; i < SLOTS; ++i) {
        block.at[i] = pack<T>(strict::min(strict::max(unpack<T>(block.at[i]), unpack<T>(lows.at[i])), unpack<T>(highs.at[i])));
    }
    store(y, run, block);
}
