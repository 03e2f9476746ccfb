// Evenly spaced values: start + i · step, wrapping in integers, in f32 one fused operation. The output is written once.

template <typename T>
inline typename Stored<T>::type spaced(ulong i, constant ArangeParams& params) {
    return T(params.start + i * params.step);
}

inline float spaced_float(ulong i, constant ArangeParams& params) {
    return fma(float(i), as_type<float>(uint(params.step)), as_type<float>(uint(params.start)));
}

template <>
inline uint spaced<float>(ulong i, constant ArangeParams& params) {
    return pack<float>(spaced_float(i, params));
}

template <>
inline ushort spaced<half>(ulong i, constant ArangeParams& params) {
    return pack<half>(spaced_float(i, params));
}

template <>
inline ushort spaced<bfloat>(ulong i, constant ArangeParams& params) {
    return pack<bfloat>(spaced_float(i, params));
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
    Elements<T> block;
    for (uint i = 0; i < SLOTS; ++i) {
        block.at[i] = spaced<T>(first + i, params);
    }
    store_block(stored(y) + first, block, elements_from(first, params.count));
}
