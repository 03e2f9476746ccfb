// The functions of the table that are a few operations: on floats, and on integers, which wrap.

namespace strict {

template <typename T>
inline T add(T a, T b) {
    return T(ulong(a) + ulong(b));
}

inline float add(float a, float b) {
    return a + b;
}

template <typename T>
inline T sub(T a, T b) {
    return T(ulong(a) - ulong(b));
}

inline float sub(float a, float b) {
    return a - b;
}

template <typename T>
inline T mul(T a, T b) {
    return T(ulong(a) * ulong(b));
}

inline float mul(float a, float b) {
    return a * b;
}

// Towards zero; by zero zero; the least number by -1 itself.
template <typename T>
inline T div(T a, T b) {
    if (T(-1) < T(0) && b == T(-1)) {
        return T(0ul - ulong(a));
    }
    return b == T(0) ? T(0) : T(a / b);
}

inline float div(float a, float b) {
    return a / b;
}

// By zero the dividend.
template <typename T>
inline T rem(T a, T b) {
    if (b == T(0)) {
        return a;
    }
    return T(-1) < T(0) && b == T(-1) ? T(0) : T(a % b);
}

inline float rem(float a, float b) {
    return metal::fma(-metal::trunc(a / b), b, a);
}

template <typename T>
inline T min(T a, T b) {
    return b < a ? b : a;
}

// NaN if either is; one instruction on NVIDIA's GPUs where `b` is a constant other than zero.
inline float min(float a, float b) {
    return !(a >= b) && !isnan(b) ? a : b;
}

template <typename T>
inline T max(T a, T b) {
    return b > a ? b : a;
}

inline float max(float a, float b) {
    return !(a <= b) && !isnan(b) ? a : b;
}

template <typename T>
inline T bit_and(T a, T b) {
    return T(a & b);
}

template <typename T>
inline T bit_or(T a, T b) {
    return T(a | b);
}

template <typename T>
inline T bit_xor(T a, T b) {
    return T(a ^ b);
}

template <typename T>
inline T bit_not(T a) {
    return T(~a);
}

inline bool bit_not(bool a) {
    return !a;
}

// Counts modulo the width.
template <typename T>
inline T shl(T a, T b) {
    return T(ulong(a) << (ulong(b) & (8 * sizeof(T) - 1)));
}

template <typename T>
inline T shr(T a, T b) {
    return T(a >> (uint(b) & uint(8 * sizeof(T) - 1)));
}

template <typename T>
inline T popcount(T a) {
    const ulong bits = sizeof(T) == 8 ? ulong(a) : ulong(a) & ((1ul << (8 * sizeof(T) & 63)) - 1ul);
    return T(metal::popcount(uint(bits)) + metal::popcount(uint(bits >> 32)));
}

template <typename T>
inline T neg(T a) {
    return T(0ul - ulong(a));
}

inline float neg(float a) {
    return -a;
}

template <typename T>
inline T abs(T a) {
    return a < T(0) ? neg(a) : a;
}

inline float abs(float a) {
    return metal::fabs(a);
}

template <typename T>
inline T sign(T a) {
    return a < T(0) ? T(-1) : T(a > T(0));
}

inline float sign(float a) {
    return a > 0.0f ? 1.0f : (a < 0.0f ? -1.0f : a);
}

template <typename T>
inline T square(T a) {
    return mul(a, a);
}

template <typename T>
inline T relu(T a) {
    return a < T(0) ? T(0) : a;
}

inline float reciprocal(float a) {
    return 1.0f / a;
}

inline float softsign(float a) {
    return a / (1.0f + metal::fabs(a));
}

inline float leaky_relu(float a, float slope) {
    return a < 0.0f ? slope * a : a;
}

template <typename T>
inline T mad(T a, T b, T c) {
    return add(mul(a, b), c);
}

}  // namespace strict
