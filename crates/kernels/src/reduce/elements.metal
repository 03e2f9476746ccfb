// What elements of each type are reduced in, and how they are loaded.

// Kept and reduced axes of a geometry, at most.
constant constexpr uint AXES = 4;

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

// Neighbouring elements, in words of up to 16 bytes.
template <typename T>
struct alignas(sizeof(T) == 1 ? 8 : 16) Slots {
    T at[SLOTS];
};

template <typename T>
inline bool is_aligned(device const T* p) {
    return (reinterpret_cast<ulong>(p) & (alignof(Slots<T>) - 1)) == 0;
}

// The sum of index · stride over the axes, the last one fastest; in 32 bits where the index has no more.
template <typename I>
inline ulong walk(constant ulong* extents, constant ulong* strides, I index) {
    ulong at = 0;
    for (uint axis = AXES; index > 0 && axis > 0; --axis) {
        const I extent = I(min(extents[axis - 1], ulong(~I(0))));
        at += ulong(index % extent) * strides[axis - 1];
        index /= extent;
    }
    return at;
}

inline ulong offset_of(constant ulong* extents, constant ulong* strides, ulong index) {
    if (index < extents[AXES - 1]) {
        return index * strides[AXES - 1];
    }
    return index < 0xffffffffu ? walk(extents, strides, uint(index)) : walk(extents, strides, index);
}

// Where the elements of output (o, i) begin.
inline ulong kept_offset(constant Geometry& g, ulong o) {
    return offset_of(g.kept_extents, g.kept_strides, o);
}

// Where element k lies behind that.
inline ulong reduced_offset(constant Geometry& g, ulong k) {
    return offset_of(g.reduced_extents, g.reduced_strides, k);
}
