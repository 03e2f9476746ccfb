// Functions of one tensor, element by element: a function object computes in f32, or in an integer type, which wraps.

// Of a function of one number, and of one of two, the second of which is the same for all elements.
template <typename Op, typename T>
inline auto value(T x, float) -> decltype(Op::apply(x)) {
    return Op::apply(x);
}

template <typename Op, typename T>
inline auto value(T x, float scalar) -> decltype(Op::apply(x, scalar)) {
    return Op::apply(x, scalar);
}

template <typename Op, typename T>
[[kernel]] void unary(
    device const T* x [[buffer(0)]],
    device T* y [[buffer(1)]],
    constant UnaryParams& params [[buffer(2)]],
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
        block.at[i] = pack<T>(value<Op>(unpack<T>(block.at[i]), params.scalar));
    }
    store(y, run, block);
}

// The same for a tensor without gaps: a word of BYTES bytes for each thread.
template <typename Op, typename T, uint BYTES>
[[kernel]] void unary_dense(
    device const T* x [[buffer(0)]],
    device T* y [[buffer(1)]],
    constant Dense& dense [[buffer(2)]],
    uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]])
{
    const ulong first = (ulong(group) * THREADS + index) * Word<T, BYTES>::COUNT;
    if (first >= dense.count) {
        return;
    }
    Word<T, BYTES> word = load_word<BYTES>(x + (dense.origins[0] + first), dense.count - first);
    for (uint i = 0; i < Word<T, BYTES>::COUNT; ++i) {
        word.at[i] = pack<T>(value<Op>(unpack<T>(word.at[i]), dense.alpha));
    }
    store_word(y + first, dense.count - first, word);
}
