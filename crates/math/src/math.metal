// The strict transcendental functions: the same sequences of operations as math/*.rs, where their ideas and errors are explained.

namespace strict {

constant constexpr float ROUND = 12582912.0f;

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
    return as_type<float>((uint(k) + 127u) << 23);
}

inline float scale(float m, int k) {
    const int half_k = k >> 1;
    return m * pow2(half_k) * pow2(k - half_k);
}

// For |a| >= |b| or a = 0.
inline Pair fast_two_sum(float a, float b) {
    const float sum = a + b;
    return {sum, b - (sum - a)};
}

inline Pair two_sum(float a, float b) {
    const float sum = a + b;
    const float b_part = sum - a;
    return {sum, (a - (sum - b_part)) + (b - b_part)};
}

inline Pair two_product(float a, float b) {
    const float product = a * b;
    return {product, fma(a, b, -product)};
}

inline Pair divide(Pair n, Pair d) {
    const float inverse = 1.0f / d.hi;
    const float quotient = n.hi * inverse;
    const float remainder = fma(-quotient, d.hi, n.hi) + fma(-quotient, d.lo, n.lo);
    return {quotient, remainder * inverse};
}

// For 1 <= x <= 2.
inline float mantissa_reciprocal(float x) {
    float y = fma(fma(0.32323232f, x, -1.4545455f), x, 2.1212122f);
    y = fma(y, fma(-x, y, 1.0f), y);
    return fma(y, fma(-x, y, 1.0f), y);
}

// NaN stays NaN.
inline float clamp(float x, float low, float high) {
    x = x < low ? low : x;
    return x > high ? high : x;
}

inline float rsqrt(float x) {
    return 1.0f / metal::sqrt(x);
}

// --- exponentials

constant constexpr float LOG2_E = 1.44269504088896340736f;
constant constexpr float LOG10_2 = 0.301029995663981195214f;
constant constexpr float LN2 = 0.693147180559945309417f;
constant constexpr float LN2_TAIL = -1.9046542e-9f;
constant constexpr float LN2_HI = 0x1.62e4p-1f;
constant constexpr float LN2_LO = 0x1.7f7d1cp-20f;
constant constexpr float ROUND_EXPONENT = ROUND + 127.0f;
constant constexpr float EXP_WHOLE[7] = {1.3814602e-3f, 8.368716e-3f, 4.166839e-2f, 0.16666521f, 0.49999994f, 1.0f, 1.0f};
constant constexpr float EXP_BFLOAT[6] = {8.357201e-3f, 4.183381e-2f, 1.666663e-1f, 4.999975e-1f, 1.0f, 1.0f};
constant constexpr int RAISE = 96;
constant constexpr float ROUND_RAISED = ROUND + 127.0f + 96.0f;
constant constexpr float LOWERED = 0x1p-96f;
constant constexpr float EXP[6] = {1.9952803e-4f, 1.3930883e-3f, 8.333198e-3f, 4.1666508e-2f, 1.6666667e-1f, 0.5f};

inline int integer(float rounded) {
    return int(as_type<uint>(rounded) - as_type<uint>(ROUND));
}

// 2^k · (hi + lo).
struct Exponential {
    float hi;
    float lo;
    int k;

    Exponential normalized() const {
        const Pair sum = fast_two_sum(hi, lo);
        return {sum.hi, sum.lo, k};
    }

    Pair parts() const {
        const float power = pow2(k < -126 ? -126 : k);
        return {hi * power, lo * power};
    }

    Pair raised() const {
        const float power = pow2(k + RAISE);
        return {hi * power, lo * power};
    }

    float value() const { return scale(hi + lo, k); }
};

inline Exponential exp_reduced(float r, float tail, int k) {
    const float hi = 1.0f + r;
    const float lo = (1.0f - hi) + r;
    return {hi, lo + fma(r * r, polynomial(r, EXP), tail), k};
}

// e^(x + tail)
inline Exponential exp_of_sum(float x, float tail) {
    const float rounded = fma(x, LOG2_E, ROUND);
    const float n = rounded - ROUND;
    const float high = fma(n, -LN2_HI, x);
    const float r = fma(n, -LN2_LO, high);
    const Pair sum = fast_two_sum(r, fma(n, -LN2_LO, high - r) + tail);
    return exp_reduced(sum.hi, sum.lo, integer(rounded));
}

inline Exponential exp_of(float x) {
    const float rounded = fma(x, LOG2_E, ROUND);
    const float n = rounded - ROUND;
    const float high = fma(n, -LN2_HI, x);
    const float r = fma(n, -LN2_LO, high);
    return exp_reduced(r, fma(n, -LN2_LO, high - r), integer(rounded));
}

// 2^(x + tail)
inline Exponential exp2_of_sum(float x, float tail) {
    const float rounded = x + ROUND;
    const float f = x - (rounded - ROUND);
    const Pair product = two_product(f, LN2);
    const Pair r = fast_two_sum(product.hi, fma(tail, LN2, fma(f, LN2_TAIL, product.lo)));
    return exp_reduced(r.hi, r.lo, integer(rounded));
}

inline float exp(float x) {
    return exp_of(clamp(x, -104.0f, 89.0f)).value();
}

// For x <= 88; 0 where the result is below 2^-126. The low bits of `rounded` are the exponent of the power of two.
inline float exp_nonpositive(float x) {
    const float least = x < -88.0f ? -88.0f : x;
    const float rounded = fma(least, LOG2_E, ROUND_EXPONENT);
    const float n = rounded - ROUND_EXPONENT;
    const float r = fma(n, -LN2_LO, fma(n, -LN2_HI, least));
    return polynomial(r, EXP_WHOLE) * as_type<float>(as_type<uint>(rounded) << 23);
}

inline float exp2(float x) {
    return exp2_of_sum(clamp(x, -151.0f, 129.0f), 0.0f).value();
}

// --- logarithms

constant constexpr float LOG2_E_TAIL = 1.925963e-8f;
constant constexpr uint SQRT_HALF_BITS = 0x3f3504f3u;
constant constexpr float LOG[9] = {7.037888e-2f, -1.1510564e-1f, 1.1674777e-1f, -1.2420645e-1f, 1.4249669e-1f, -1.6668043e-1f, 2.00007e-1f, -2.4999994e-1f, 3.333333e-1f};

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

// ln(x) + tail
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

inline float log2(float x) {
    const Pair parts = split(x);
    const Pair mantissa = log_of_mantissa(parts.lo);
    const Pair product = two_product(mantissa.hi, LOG2_E);
    const float rest = fma(mantissa.lo, LOG2_E, fma(mantissa.hi, LOG2_E_TAIL, product.lo));
    const Pair sum = fast_two_sum(parts.hi, product.hi);
    return with_special_cases(x, sum.hi + (sum.lo + rest));
}

// ln(1 + x + tail)
inline float log1p_of_sum(float x, float tail) {
    const float u = 1.0f + x;
    const float lost = x < 1.0f ? x - (u - 1.0f) : 1.0f - (u - x);
    return log_plus(u, (lost + tail) / u);
}

inline float log10(float x) {
    return log2(x) * LOG10_2;
}

inline float log1p(float x) {
    const float value = with_special_cases(1.0f + x, log1p_of_sum(x, 0.0f));
    return x == 0.0f ? x : value;
}

// --- powers

constant constexpr float ATANH[4] = {9.433317e-2f, 0.11108915f, 0.1428567f, 0.2f};

inline Pair product(Pair a, Pair b) {
    const Pair exact = two_product(a.hi, b.hi);
    return fast_two_sum(exact.hi, fma(a.hi, b.lo, fma(a.lo, b.hi, exact.lo)));
}

inline Pair sum(Pair a, Pair b) {
    const Pair exact = fast_two_sum(a.hi, b.hi);
    return fast_two_sum(exact.hi, exact.lo + (a.lo + b.lo));
}

inline Pair log2_of(float x) {
    const Pair third = {0.33333334f, -9.934108e-9f};
    const Pair two_log2_e = {2.88539f, 3.851926e-8f};
    const Pair parts = split(x);
    const Pair quotient = divide({parts.lo, 0.0f}, fast_two_sum(2.0f, parts.lo));
    const Pair s = fast_two_sum(quotient.hi, quotient.lo);
    const Pair square = product(s, s);
    const Pair series = sum(third, {square.hi * polynomial(square.hi, ATANH), 0.0f});
    const Pair atanh = sum(s, product(s, product(square, series)));
    return sum({parts.hi, 0.0f}, product(atanh, two_log2_e));
}

inline float pow(float x, float y) {
    const float magnitude = fabs(x);
    const Pair log = log2_of(magnitude);
    float log_hi = magnitude == 0.0f ? -INFINITY : log.hi;
    log_hi = magnitude == INFINITY ? INFINITY : log_hi;
    const Pair exponent = two_product(y, log_hi);
    const float tail = fabs(exponent.hi) < 160.0f ? fma(y, log.lo, exponent.lo) : 0.0f;
    const float power = exp2_of_sum(clamp(exponent.hi, -160.0f, 160.0f), tail).value();

    const bool whole = rint(y) == y;
    const float half_y = 0.5f * y;
    const bool odd = whole && rint(half_y) != half_y;
    const bool defined = x >= 0.0f || (x < 0.0f && (whole || x == -INFINITY));
    const bool one = x == 1.0f || y == 0.0f || (x == -1.0f && fabs(y) == INFINITY);
    const float value = defined ? (odd ? copysign(power, x) : power) : NAN;
    return one ? 1.0f : value;
}

// --- angles

constant constexpr float FAST_TRIG_LIMIT = 262144.0f;
constant constexpr float TWO_OVER_PI = 0.636619772367581343076f;
constant constexpr float PI_2[3] = {1.57079632679489661923f, -4.371139e-8f, -1.7151245e-15f};
constant constexpr uint TWO_OVER_PI_BITS[8] = {0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu};
constant constexpr float SIN[4] = {2.8940228e-6f, -1.9859137e-4f, 8.333393e-3f, -1.6666667e-1f};
constant constexpr float COS[3] = {2.453634e-5f, -1.3888242e-3f, 4.1666664e-2f};
constant constexpr float TAN[7] = {4.0116743e-3f, 8.9332584e-4f, 1.0150739e-2f, 2.1565288e-2f, 5.4001924e-2f, 1.3333194e-1f, 3.3333334e-1f};

// quadrant · π/2 + hi + lo, the quadrant modulo 4.
struct Angle {
    uint quadrant;
    float hi;
    float lo;
};

// For 0 <= x <= FAST_TRIG_LIMIT: Cody and Waite.
inline Angle small_angle(float x) {
    const float rounded = fma(x, TWO_OVER_PI, ROUND);
    const float n = rounded - ROUND;
    const float first = fma(n, -PI_2[0], x);
    const Pair product = two_product(n, PI_2[1]);
    const Pair second = two_sum(first, -product.hi);
    const float rest = fma(n, -PI_2[2], second.lo - product.lo);
    const Pair sum = fast_two_sum(second.hi, rest);
    return {as_type<uint>(rounded), sum.hi, sum.lo};
}

// A signed 64-bit fraction.
inline Pair fraction(ulong bits) {
    const float high = float(int(long(bits) >> 40)) * 0x1p-24f;
    const float middle = float(uint(bits >> 16) & 0x00ffffffu) * 0x1p-48f;
    const float low = float(uint(bits) & 0xffffu) * 0x1p-64f;
    const Pair sum = fast_two_sum(high, middle);
    return {sum.hi, sum.lo + low};
}

// 32 bits of 2/π from bit `start` of word `i` on.
inline uint two_over_pi(uint start, uint i) {
    const uint high = TWO_OVER_PI_BITS[((start >> 5) + i) & 7u];
    const uint low = TWO_OVER_PI_BITS[((start >> 5) + i + 1u) & 7u];
    return uint((((ulong(high) << 32) | ulong(low)) << (start & 31u)) >> 32);
}

// For larger ones: Payne and Hanek.
inline Angle large_angle(float x) {
    const uint bits = as_type<uint>(x);
    const uint mantissa = (bits & 0x007fffffu) | 0x00800000u;
    const uint start = (bits >> 23) - 120u;
    const ulong top = ulong(mantissa * two_over_pi(start, 0u)) << 32;
    const ulong middle = ulong(mantissa) * ulong(two_over_pi(start, 1u));
    const ulong bottom = (ulong(mantissa) * ulong(two_over_pi(start, 2u))) >> 32;
    const ulong turns = top + middle + bottom;
    const Pair part = fraction(turns << 2);
    const Pair angle = two_product(part.hi, PI_2[0]);
    return {(uint(turns >> 61) + 1u) >> 1, angle.hi, fma(part.lo, PI_2[0], fma(part.hi, PI_2[1], angle.lo))};
}

inline Angle any_angle(float x) {
    return x <= FAST_TRIG_LIMIT ? small_angle(x) : large_angle(x);
}

// The sine of an angle whose quadrant counts from `turn` on.
inline float sine(Angle angle, uint turn) {
    const uint quadrant = angle.quadrant + turn;
    const float hi = angle.hi;
    const float z = hi * hi;
    const float half_hi = 0.5f * hi;
    const float w = fma(-half_hi, hi, 1.0f);
    const float w_error = fma(-half_hi, hi, 1.0f - w);
    const float sin = hi + fma(z * hi, polynomial(z, SIN), angle.lo * w);
    const float cos = w + fma(z * z, polynomial(z, COS), fma(-hi, angle.lo, w_error));
    const float value = (quadrant & 1u) == 0u ? sin : cos;
    return as_type<float>(as_type<uint>(value) ^ ((quadrant & 2u) << 30));
}

// The sign of x multiplied in; NaN where x is not finite.
inline float odd(float x, float value) {
    const float signed_value = as_type<float>(as_type<uint>(value) ^ (as_type<uint>(x) & 0x80000000u));
    return fabs(x) < INFINITY ? signed_value : NAN;
}

inline float sin(float x) {
    return odd(x, sine(any_angle(fabs(x)), 0u));
}

inline float cos(float x) {
    const float value = sine(any_angle(fabs(x)), 1u);
    return fabs(x) < INFINITY ? value : NAN;
}

// The bits of sin and cos for |x| <= FAST_TRIG_LIMIT, without the table.
inline float sin_fast(float x) {
    return odd(x, sine(small_angle(fabs(x)), 0u));
}

inline float cos_fast(float x) {
    return sine(small_angle(fabs(x)), 1u);
}

inline float tan(float x) {
    const Angle angle = any_angle(fabs(x));
    const float z = angle.hi * angle.hi;
    const Pair sum = fast_two_sum(angle.hi, z * angle.hi * polynomial(z, TAN));
    const float error = sum.lo + fma(sum.hi * sum.hi, angle.lo, angle.lo);
    const float inverse = -1.0f / sum.hi;
    const float remainder = fma(inverse, sum.hi, 1.0f) + inverse * error;
    const float cotangent = fma(inverse, remainder, inverse);
    return odd(x, (angle.quadrant & 1u) == 0u ? sum.hi + error : cotangent);
}

// --- activations

inline float tanh(float x) {
    const float magnitude = fabs(x);
    const Pair e = exp_of(-2.0f * (magnitude > 10.0f ? 10.0f : magnitude)).normalized().parts();
    const Pair below = fast_two_sum(1.0f, -e.hi);
    const Pair above = fast_two_sum(1.0f, e.hi);
    const Pair quotient = divide(fast_two_sum(below.hi, below.lo - e.lo), {above.hi, above.lo + e.lo});
    return copysign(quotient.hi + quotient.lo, x);
}

constant constexpr float ERF_SMALL[8] = {-7.67765e-6f, 6.264567e-5f, -4.4369273e-4f, 2.776446e-3f, -1.4779682e-2f, 6.551697e-2f, -2.4044997e-1f, -1.076873e-1f};
constant constexpr float ERF_LARGE[6] = {-9.402382e-4f, 1.2975016e-2f, -8.256036e-2f, -6.6454035e-1f, -1.1092587f, -5.2932263e-3f};

inline float erf(float x) {
    const float magnitude = fabs(x);
    const float t = magnitude > 4.0f ? 4.0f : magnitude;
    const float near_zero = fma(t, polynomial(fma(t, t, -0.78125f), ERF_SMALL), t);
    const Pair e = exp_of(polynomial(t, ERF_LARGE)).parts();
    const float beyond = (1.0f - e.hi) - e.lo;
    return copysign(t < 1.25f ? near_zero : beyond, x);
}

// A weight in [0, 1], factor · (hi + lo).
struct Weight {
    float hi;
    float lo;
    float factor;

    // For x above -infinity.
    float times(float x) const {
        return fma(x, hi, (x > 150.0f ? 150.0f : x) * lo) * factor;
    }
};

// e/(1 + e) if `negative`, else 1/(1 + e).
inline Weight logistic_weight(Exponential of, bool negative) {
    const Pair e = of.normalized().raised();
    const float sum = fma(e.hi, LOWERED, 1.0f);
    const float error = fma(e.lo, LOWERED, fma(e.hi, LOWERED, 1.0f - sum));
    const Pair numerator = {negative ? e.hi : 1.0f, negative ? e.lo : 0.0f};
    const float inverse = mantissa_reciprocal(sum);
    const float quotient = numerator.hi * inverse;
    const float remainder = fma(-quotient, sum, numerator.hi) + fma(-quotient, error, numerator.lo);
    return {quotient, remainder * inverse, negative ? LOWERED : 1.0f};
}

inline float sigmoid(float x) {
    const float t = -fabs(x);
    const Weight value = logistic_weight(exp_of(t < -150.0f ? -150.0f : t), x < 0.0f);
    return (value.hi + value.lo) * value.factor;
}

struct Sigmoids {
    float of;
    float of_negated;
};

inline Sigmoids sigmoids(float x) {
    const float e = exp_nonpositive(-fabs(x));
    const float larger = mantissa_reciprocal(1.0f + e), smaller = e * larger;
    return x < 0.0f ? Sigmoids{smaller, larger} : Sigmoids{larger, smaller};
}

inline float gate(float x, float alpha) {
    return (x < -FLT_MAX ? -FLT_MAX : x) * sigmoids(alpha * x).of;
}

inline float silu(float x) {
    const float magnitude = fabs(x), t = magnitude > 150.0f ? 150.0f : magnitude;
    const float rounded = fma(t, -LOG2_E, ROUND_RAISED);
    const float n = rounded - ROUND_RAISED;
    const float r = fma(n, -LN2_LO, fma(n, -LN2_HI, -t));
    const float e = polynomial(r, EXP_WHOLE) * as_type<float>(as_type<uint>(rounded) << 23);
    const float numerator = x < -150.0f ? -150.0f : x;
    const float quotient = (x < 0.0f ? numerator * e : numerator) / fma(e, LOWERED, 1.0f);
    return x < 0.0f ? quotient * LOWERED : quotient;
}

// Of a bfloat, to be rounded to one.
inline float logistic_bfloat(float x, float numerator) {
    const float t = -fabs(x);
    const float rounded = fma(t < -100.0f ? -100.0f : t, LOG2_E, ROUND);
    const float r = fma(rounded - ROUND, -LN2, t < -100.0f ? -100.0f : t);
    const float e = polynomial(r, EXP_BFLOAT) * pow2(integer(rounded) + RAISE);
    const float quotient = numerator * mantissa_reciprocal(fma(e, LOWERED, 1.0f));
    return x < 0.0f ? quotient * e * LOWERED : quotient;
}

inline float sigmoid_bfloat(float x) {
    return logistic_bfloat(x, 1.0f);
}

inline float silu_bfloat(float x) {
    return logistic_bfloat(x, x < -100.0f ? -100.0f : x);
}

inline float softplus(float x) {
    const float t = -fabs(x);
    const Exponential e = exp_of(t < -104.0f ? -104.0f : t).normalized();
    const Pair parts = e.parts();
    const float log = log1p_of_sum(parts.hi, parts.lo);
    const float below = t < -20.0f ? e.value() : log;
    return x > 0.0f ? x + below : below;
}

inline float gelu_tanh(float x) {
    const Pair linear = {1.5957692f, -4.534068e-8f};
    const Pair cubed = {7.1354814e-2f, 2.3988325e-9f};
    const float t = clamp(x, -12.0f, 12.0f);
    const Pair square = two_product(t, t);
    const Pair cubic = two_product(cubed.hi, square.hi);
    const float cubic_tail = fma(cubed.hi, square.lo, fma(cubed.lo, square.hi, cubic.lo));
    const Pair slope = two_sum(linear.hi, cubic.hi);
    const float slope_tail = slope.lo + (cubic_tail + linear.lo);
    const Pair v = two_product(t, slope.hi);
    const float tail = fma(t, slope_tail, v.lo);
    const bool negative = x < 0.0f;
    const Exponential e = exp_of_sum(negative ? v.hi : -v.hi, negative ? tail : -tail);
    return logistic_weight(e, negative).times(clamp(x, -12.0f, INFINITY));
}

constant constexpr float NORMAL_TAIL[9] = {1.6951475e-2f, 2.0950975e-2f, -4.213518e-2f, -7.657126e-2f, 3.5196055e-2f, 2.5672004e-1f, 4.3550178e-1f, 4.6287918e-1f, 3.5695225e-1f};

// Φ(-t)·e^(t²/2) for 0 <= t <= 14.6, Φ the normal distribution function.
inline Pair scaled_normal_tail(float t) {
    const Pair a = two_sum(1.0f, 0.25f * t);
    const float v = 1.0f / a.hi;
    const float distance = v - 0.5625f;
    const Pair product = two_product(distance, polynomial(distance, NORMAL_TAIL));
    const Pair sum = two_sum(2.0942512e-1f, product.hi);
    const Pair value = two_product(v, sum.hi);
    const float difference = -4.0f * a.hi * (fma(-v, a.hi, 1.0f) - v * a.lo);
    const float shift = difference * fma(t, value.hi, -0.3989423f);
    return {value.hi, fma(v, sum.lo + product.lo, value.lo) + shift};
}

// The tail if `negative`, else 1 - tail.
inline Weight normal_weight(Exponential tail, bool negative) {
    const Pair parts = tail.raised();
    const float rest = fma(parts.hi, -LOWERED, 1.0f);
    const float error = fma(parts.lo, -LOWERED, fma(parts.hi, -LOWERED, 1.0f - rest));
    return {negative ? parts.hi : rest, negative ? parts.lo : error, negative ? LOWERED : 1.0f};
}

inline float gelu(float x) {
    const float c = clamp(x, -14.6f, 14.6f);
    const Pair square = two_product(c, c);
    const Exponential e = exp_of_sum(-0.5f * square.hi, -0.5f * square.lo).normalized();
    const Pair tail = scaled_normal_tail(fabs(c));
    const Pair product = two_product(e.hi, tail.hi);
    const float lo = fma(e.hi, tail.lo, fma(e.lo, tail.hi, product.lo));
    const float value = normal_weight({product.hi, lo, e.k}, x < 0.0f).times(clamp(x, -14.6f, INFINITY));
    return x == 0.0f ? x : value;
}

inline float mish(float x) {
    return x < -20.0f ? silu(x) : x * tanh(softplus(x));
}

inline float hard_swish(float x) {
    return x * clamp(x / 6.0f + 0.5f, 0.0f, 1.0f);
}

// e^x - 1 = 2t / (1 - t) with t = tanh(x / 2) cancels nowhere.
inline float elu(float x, float scale) {
    const float t = tanh(0.5f * x);
    return x < 0.0f ? scale * ((t + t) / (1.0f - t)) : x;
}

inline float selu(float x) {
    return x < 0.0f ? elu(x, 1.7580993f) : 1.050701f * x;
}

inline float hard_sigmoid(float x, float slope) {
    return clamp(fma(slope, x, 0.5f), 0.0f, 1.0f);
}

}  // namespace strict
