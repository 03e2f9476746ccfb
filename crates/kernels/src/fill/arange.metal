// Evenly spaced values: start + i · step, wrapping in integers, in f32 one fused operation. The output is written once.

template <typename T>
inline T spaced(ulong i, constant ArangeParams& params) {
    return T(params.start + i * params.step);
}

inline float spaced_float(ulong i, constant ArangeParams& params) {
    return fma(float(i), from_bits<float>(params.step), from_bits<float>(params.start));
}

template <>
inline float spaced<float>(ulong i, constant ArangeParams& params) {
    return spaced_float(i, params);
}

template <>
inline half spaced<half>(ulong i, constant ArangeParams& params) {
    return narrow<half>(spaced_float(i, params));
}

template <>
inline bfloat spaced<bfloat>(ulong i, constant ArangeParams& params) {
    return narrow<bfloat>(spaced_float(i, params));
}

template <typename T>
[[kernel]] void arange(
    device T* y [[buffer(0)]],
    constant ArangeParams& params [[buffer(1)]],
    uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]])
{
    const ulong first = first_element(group, index);
    if (first >= params.count) {
        return;
    }
    Block<T> block;
    for (uint i = 0; i < SLOTS; ++i) {
        block.at[i] = spaced<T>(first + i, params);
    }
    store_block(y + first, block, elements_from(first, params.count));
}
