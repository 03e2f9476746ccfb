// Arithmetic of two tensors, broadcast, by a function object: each is read once, the output is written once.

template <typename Op, typename T, typename E = T>
[[kernel]] void binary(
    device const T* a [[buffer(0)]],
    device const E* b [[buffer(1)]],
    device T* y [[buffer(2)]],
    constant BinaryParams& params [[buffer(3)]],
    uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]])
{
    const ulong first = first_element(group, index);
    if (first >= params.space.count) {
        return;
    }
    const Run run(params.space, first);
    Elements<T> left = load(a, params.space, params.a, run);
    const Elements<E> right = load(b, params.space, params.b, run);
    for (uint i = 0; i < SLOTS; ++i) {
        left.at[i] = pack<T>(Op::apply(unpack<T>(left.at[i]), unpack<E>(right.at[i])));
    }
    store(y, run, left);
}

// The same for tensors of one shape without gaps: a word of BYTES bytes for each thread.
template <typename Op, typename T, uint BYTES>
[[kernel]] void binary_dense(
    device const T* a [[buffer(0)]],
    device const T* b [[buffer(1)]],
    device T* y [[buffer(2)]],
    constant Dense& dense [[buffer(3)]],
    uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]])
{
    const ulong first = (ulong(group) * THREADS + index) * Word<T, BYTES>::COUNT;
    if (first >= dense.count) {
        return;
    }
    Word<T, BYTES> left = load_word<BYTES>(a + (dense.origins[0] + first), dense.count - first);
    const Word<T, BYTES> right = load_word<BYTES>(b + (dense.origins[1] + first), dense.count - first);
    for (uint i = 0; i < Word<T, BYTES>::COUNT; ++i) {
        left.at[i] = pack<T>(Op::apply(unpack<T>(left.at[i]), unpack<T>(right.at[i])));
    }
    store_word(y + first, dense.count - first, left);
}

// Powers of integers.
struct Power {
    template <typename T>
    static T apply(T base, ulong exponent) { return power(base, false, exponent); }

    template <typename T>
    static T apply(T base, long exponent) { return power(base, exponent < 0, exponent < 0 ? 0ul - ulong(exponent) : ulong(exponent)); }

    // Only 1 and -1 have powers with a negative exponent that do not round to zero.
    template <typename T>
    static T power(T base, bool negative, ulong magnitude) {
        if (negative && base != T(1) && !(T(-1) < T(0) && base == T(-1))) {
            return T(0);
        }
        ulong result = 1, square = ulong(base);
        for (; magnitude != 0; magnitude >>= 1) {
            result = (magnitude & 1) != 0 ? result * square : result;
            square *= square;
        }
        return T(result);
    }
};
