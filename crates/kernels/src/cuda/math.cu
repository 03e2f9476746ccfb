// What the strict functions, written in Metal, take from their language.

typedef unsigned int uint;
typedef unsigned long long ulong;
#define constant
#define INFINITY __int_as_float(0x7f800000)
#define FLT_MAX __int_as_float(0x7f7fffff)
#define NAN __int_as_float(0x7fffffff)

template <typename T, typename S>
DEVICE T as_type(S x) {
    static_assert(sizeof(T) == sizeof(S));
    T y;
    memcpy(&y, &x, sizeof(T));
    return y;
}

namespace metal {
DEVICE float sqrt(float x) { return __fsqrt_rn(x); }
}
