// The functions of <metal_math> that no instruction computes. Those in math.metal are the library's own; the others are made of them. Each is a fixed
// sequence of IEEE-754 operations, so that every device which includes this has the same bits.
#pragma once

namespace elv {
namespace elementary {
typedef unsigned int uint;
typedef unsigned long ulong;
ELV_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
ELV_INLINE float fabs(float x) { return __builtin_fabsf(x); }
ELV_INLINE float rint(float x) { return __builtin_rintf(x); }
ELV_INLINE float copysign(float x, float y) { return __builtin_copysignf(x, y); }
namespace metal {
ELV_INLINE float sqrt(float x) { return __builtin_sqrtf(x); }
} // namespace metal
template <class T, class U> constexpr T as_type(U x) { return __builtin_bit_cast(T, x); }

#include "math.metal"

using strict::clamp;
using strict::exp_of;
using strict::exp_of_sum;
using strict::log1p;
using strict::Pair;

// ---- exponentials
// e^x / 2
inline float half_exp(float x) {
  strict::Exponential e = exp_of(clamp(x, -104.0f, 91.0f));
  e.k--;
  return e.value();
}
inline float exp10(float x) {
  float held = clamp(x, -46.0f, 39.0f);
  Pair exponent = strict::two_product(held, 2.30258512f);
  return exp_of_sum(exponent.hi, fma(held, -3.19754867e-8f, exponent.lo)).value();
}
inline float cosh(float x) {
  float half_e = half_exp(fabs(x));
  return half_e + 0.25f / half_e;
}
inline float sinh(float x) {
  float magnitude = fabs(x), z = x * x;
  float near_zero = fma(magnitude * z, fma(fma(fma(2.80628026e-6f, z, 1.98381021e-4f), z, 8.33333968e-3f), z, 0.166666666f), magnitude);
  float half_e = half_exp(magnitude);
  return copysign(magnitude < 1.0f ? near_zero : half_e - 0.25f / half_e, x);
}

// ---- logarithms
// Beyond this the 1 under a root does not count, and the square may exceed the greatest number.
ELV_TABLE float LARGE = 0x1p30f;
inline float asinh(float x) {
  float magnitude = fabs(x), square = x * x;
  float value = log1p(magnitude + square / (1.0f + metal::sqrt(1.0f + square)));
  return copysign(magnitude > LARGE ? strict::log(magnitude) + strict::LN2 : value, x);
}
inline float acosh(float x) {
  float above = x - 1.0f;
  float value = log1p(above + metal::sqrt(fma(above, above, 2.0f * above)));
  return x < 1.0f ? NAN : x > LARGE ? strict::log(x) + strict::LN2 : value;
}
inline float atanh(float x) {
  float magnitude = fabs(x);
  return copysign(0.5f * log1p(2.0f * magnitude / (1.0f - magnitude)), x);
}

// ---- angles
ELV_TABLE float ATAN[10] = {1.48869193e-3f, -9.14462974e-3f, 2.63050011e-2f, -4.8960514e-2f, 7.03191424e-2f,
                            -8.93182677e-2f, 0.110882616f,   -0.142840038f,  0.199999493f,   -0.333333331f};
ELV_TABLE float ASIN[6] = {3.36908471e-2f, 1.71492385e-2f, 3.11006627e-2f, 4.45994026e-2f, 7.50009454e-2f, 0.166666663f};
ELV_TABLE float HALF_PI = 1.57079637f;
ELV_TABLE float HALF_PI_TAIL = -4.37113883e-8f;
// For 0 <= x <= 1.
inline float atan_below_one(float x) {
  float z = x * x;
  return fma(x * z, strict::polynomial(z, ATAN), x);
}
inline float atan(float x) {
  float magnitude = fabs(x);
  bool is_above = magnitude > 1.0f;
  float value = atan_below_one(is_above ? 1.0f / magnitude : magnitude);
  return copysign(is_above ? HALF_PI - (value - HALF_PI_TAIL) : value, x);
}
inline float atan2(float y, float x) {
  float height = fabs(y), width = fabs(x);
  bool is_steep = height > width;
  float least = is_steep ? width : height, most = is_steep ? height : width;
  float quotient = most == 0.0f ? 0.0f : least == INFINITY ? 1.0f : least / most;
  float value = atan_below_one(quotient);
  value = is_steep ? HALF_PI - (value - HALF_PI_TAIL) : value;
  value = as_type<uint>(x) >> 31 != 0 ? 2.0f * HALF_PI - (value - 2.0f * HALF_PI_TAIL) : value;
  return x != x || y != y ? NAN : copysign(value, y);
}
// For 0 <= x <= 1/2.
inline float asin_below_half(float x) {
  float z = x * x;
  return fma(x * z, strict::polynomial(z, ASIN), x);
}
inline float asin(float x) {
  float magnitude = fabs(x);
  bool is_above = magnitude > 0.5f;
  float value = asin_below_half(is_above ? metal::sqrt(fma(-0.5f, magnitude, 0.5f)) : magnitude);
  return copysign(is_above ? HALF_PI - (2.0f * value - HALF_PI_TAIL) : value, x);
}
inline float acos(float x) {
  float magnitude = fabs(x);
  bool is_above = magnitude > 0.5f;
  float value = asin_below_half(is_above ? metal::sqrt(fma(-0.5f, magnitude, 0.5f)) : magnitude);
  float near_zero = HALF_PI - (copysign(value, x) - HALF_PI_TAIL);
  float beyond = x < 0.0f ? 2.0f * HALF_PI - (2.0f * value - 2.0f * HALF_PI_TAIL) : 2.0f * value;
  return is_above ? beyond : near_zero;
}
// π x as an angle; whole turns go exactly.
inline strict::Angle half_turns(float x) {
  float rest = fma(-2.0f, rint(0.5f * x), x);
  float quadrant = rint(2.0f * rest);
  float part = fma(-0.5f, quadrant, rest);
  Pair angle = strict::two_product(part, 2.0f * HALF_PI);
  return {(uint)(int)quadrant, angle.hi, fma(part, 2.0f * HALF_PI_TAIL, angle.lo)};
}
inline float sinpi(float x) { return strict::odd(x, strict::sine(half_turns(fabs(x)), 0u)); }
inline float cospi(float x) { return fabs(x) < INFINITY ? strict::sine(half_turns(fabs(x)), 1u) : NAN; }
inline float tanpi(float x) { return sinpi(x) / cospi(x); }

using strict::cos;
using strict::exp;
using strict::exp2;
using strict::log;
using strict::log10;
using strict::log2;
using strict::pow;
using strict::sin;
using strict::tan;
using strict::tanh;
} // namespace elementary
} // namespace elv
