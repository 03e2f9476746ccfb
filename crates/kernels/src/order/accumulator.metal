// What elements of each type are accumulated in: f32; for integers 32 or 64 bits.

// Sums wrap, so that they are the same in any order; extremes keep their sign.
template <typename T>
struct Accumulator {
    typedef float wrapping;
    typedef float ordered;
};

#define ACCUMULATOR(TYPE, WRAPPING, ORDERED) \
    template <> \
    struct Accumulator<TYPE> { \
        typedef WRAPPING wrapping; \
        typedef ORDERED ordered; \
    };

ACCUMULATOR(bool, uint, uint)
ACCUMULATOR(char, uint, int)
ACCUMULATOR(short, uint, int)
ACCUMULATOR(int, uint, int)
ACCUMULATOR(long, ulong, long)
ACCUMULATOR(uchar, uint, uint)
ACCUMULATOR(ushort, uint, uint)
ACCUMULATOR(uint, uint, uint)
ACCUMULATOR(ulong, ulong, ulong)

template <typename A, typename T>
inline A accumulable(T x) {
    return A(x);
}

template <>
inline float accumulable<float, bfloat>(bfloat x) {
    return widen(x);
}

// An accumulated value as an element: rounded, or cut off.
template <typename T, typename A>
inline T element(A total) {
    return T(total);
}

template <>
inline bfloat element<bfloat, float>(float total) {
    return narrow<bfloat>(total);
}
