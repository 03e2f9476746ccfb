// The strict transcendental functions: the same sequences of operations as math/*.rs, where their ideas and errors are told.

namespace strict {

constant constexpr float ROUND = 12582912.0f;
constant constexpr float LOG2_E = 1.44269504088896340736f;
constant constexpr float LN2_HI = 0x1.62e4p-1f;
constant constexpr float LN2_LO = 0x1.7f7d1cp-20f;

// An unevaluated sum.
struct Pair {
    float hi;
    float lo;
};

template <int N>
inline float polynomial(float x, constant const float (&coefficients)[N]) {
    float sum = coefficients[0];
    for (int i = 1; i < N; ++i) {
        sum = fma(sum, x, coefficients[i]);
    }
    return sum;
}

inline float pow2(int k) {
    return as_type<float>(uint(k + 127) << 23);
}

inline float scale(float m, int k) {
    const int half_k = k >> 1;
    return m * pow2(half_k) * pow2(k - half_k);
}

inline Pair fast_two_sum(float a, float b) {
    const float sum = a + b;
    return {sum, b - (sum - a)};
}

inline Pair two_product(float a, float b) {
    const float product = a * b;
    return {product, fma(a, b, -product)};
}

inline float clamp(float x, float low, float high) {
    x = x < low ? low : x;
    return x > high ? high : x;
}

// --- exponentials

constant constexpr float EXP[6] = {1.9952803e-4f, 1.3930883e-3f, 8.333198e-3f, 4.1666508e-2f, 1.6666667e-1f, 0.5f};

// 2^k · (hi + lo).
struct Exponential {
    float hi;
    float lo;
    int k;
};

inline int integer(float rounded) {
    return int(as_type<uint>(rounded) - as_type<uint>(ROUND));
}

inline Exponential exp_reduced(float r, float tail, int k) {
    const float hi = 1.0f + r;
    const float lo = (1.0f - hi) + r;
    return {hi, lo + fma(r * r, polynomial(r, EXP), tail), k};
}

inline Exponential exp_of(float x) {
    const float rounded = fma(x, LOG2_E, ROUND);
    const float n = rounded - ROUND;
    const float high = fma(n, -LN2_HI, x);
    const float r = fma(n, -LN2_LO, high);
    return exp_reduced(r, fma(n, -LN2_LO, high - r), integer(rounded));
}

inline float exp(float x) {
    const Exponential e = exp_of(clamp(x, -104.0f, 89.0f));
    return scale(e.hi + e.lo, e.k);
}

inline float exp_nonpositive(float x) {
    const Exponential e = exp_of(x < -104.0f ? -104.0f : x);
    return (e.hi + e.lo) * pow2(e.k + 64) * as_type<float>(uint(127 - 64) << 23);
}

// --- logarithms

constant constexpr float LOG[9] = {7.037888e-2f, -1.1510564e-1f, 1.1674777e-1f, -1.2420645e-1f, 1.4249669e-1f, -1.6668043e-1f, 2.00007e-1f, -2.4999994e-1f, 3.333333e-1f};
constant constexpr uint SQRT_HALF_BITS = 0x3f3504f3u;

// x = 2^hi · (1 + lo), exactly.
inline Pair split(float x) {
    const bool denormal = x < 0x1p-126f;
    const float normal = denormal ? x * 8388608.0f : x;
    const float shift = denormal ? 23.0f : 0.0f;
    const uint bits = as_type<uint>(normal) - SQRT_HALF_BITS;
    const float n = float(int(bits) >> 23) - shift;
    return {n, as_type<float>((bits & 0x007fffffu) + SQRT_HALF_BITS) - 1.0f};
}

inline Pair log_of_mantissa(float f) {
    const Pair square = two_product(f, f);
    const Pair sum = fast_two_sum(f, -0.5f * square.hi);
    return {sum.hi, fma(f * square.hi, polynomial(f, LOG), fma(-0.5f, square.lo, sum.lo))};
}

inline float log_plus(float x, float tail) {
    const Pair parts = split(x);
    const Pair mantissa = log_of_mantissa(parts.lo);
    const Pair sum = fast_two_sum(parts.hi * LN2_HI, mantissa.hi);
    return sum.hi + (fma(parts.hi, LN2_LO, sum.lo) + (mantissa.lo + tail));
}

inline float with_special_cases(float x, float value) {
    value = x < INFINITY ? value : x;
    value = x < 0.0f ? NAN : value;
    return x == 0.0f ? -INFINITY : value;
}

inline float log(float x) {
    return with_special_cases(x, log_plus(x, 0.0f));
}

}  // namespace strict
