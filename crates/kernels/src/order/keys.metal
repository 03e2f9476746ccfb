// Keys that, as unsigned numbers, sort as elements do: zeros are one, and a NaN comes after infinity.

inline uint float_key(uint bits, uint infinity, uint mask) {
    const uint sign = mask - (mask >> 1);
    const uint magnitude = bits & (mask >> 1);
    if (magnitude > infinity) {
        return mask;
    }
    return magnitude == bits || magnitude == 0 ? sign | magnitude : bits ^ mask;
}

template <typename T>
struct SortKey;

#define FLOAT_KEY(TYPE, BITS, INFINITE, ALL) \
    template <> \
    struct SortKey<TYPE> { \
        typedef uint type; \
        static constexpr constant uint MASK = ALL; \
        static type of(TYPE x) { return float_key(as_type<BITS>(x), INFINITE, MASK); } \
        static bool is_nan(type key) { return key == MASK; } \
    };

FLOAT_KEY(float, uint, 0x7f800000u, 0xffffffffu)
FLOAT_KEY(half, ushort, 0x7c00u, 0xffffu)
FLOAT_KEY(bfloat, ushort, 0x7f80u, 0xffffu)

// Signed numbers are moved up so that the least is zero.
#define INTEGER_KEY(TYPE, KEY, ALL, LEAST) \
    template <> \
    struct SortKey<TYPE> { \
        typedef KEY type; \
        static constexpr constant KEY MASK = ALL; \
        static type of(TYPE x) { return (KEY(x) & MASK) ^ KEY(LEAST); } \
        static bool is_nan(type) { return false; } \
    };

INTEGER_KEY(char, uint, 0xffu, 0x80u)
INTEGER_KEY(short, uint, 0xffffu, 0x8000u)
INTEGER_KEY(int, uint, 0xffffffffu, 0x80000000u)
INTEGER_KEY(long, ulong, 0xfffffffffffffffful, 0x8000000000000000ul)
INTEGER_KEY(uchar, uint, 0xffu, 0)
INTEGER_KEY(ushort, uint, 0xffffu, 0)
INTEGER_KEY(uint, uint, 0xffffffffu, 0)
INTEGER_KEY(ulong, ulong, 0xfffffffffffffffful, 0)
