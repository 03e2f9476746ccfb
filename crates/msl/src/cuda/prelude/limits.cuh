// <metal_limits>
#pragma once

namespace metal {
// Specialised by libraries for their own types, so the primary defers to another template.
template <class T> struct _numeric_limits_impl {
  static constexpr bool is_specialized = false;
};
template <class T> struct numeric_limits : _numeric_limits_impl<elv::value_t<T>> {};

#define ELV_LIMITS(T, low, high, bits, sign)                                                      \
  template <> struct _numeric_limits_impl<T> {                                                    \
    static constexpr bool is_specialized = true, is_signed = sign, is_integer = true, is_exact = true; \
    static constexpr bool has_infinity = false, has_quiet_NaN = false, is_bounded = true;         \
    static constexpr int digits = bits, digits10 = bits * 3 / 10, radix = 2;                      \
    static constexpr T min() { return low; }                                                      \
    static constexpr T max() { return high; }                                                     \
    static constexpr T lowest() { return low; }                                                   \
    static constexpr T epsilon() { return 0; }                                                    \
    static constexpr T infinity() { return 0; }                                                   \
    static constexpr T quiet_NaN() { return 0; }                                                  \
    static constexpr T denorm_min() { return 0; }                                                 \
  };
ELV_LIMITS(bool, false, true, 1, false)
ELV_LIMITS(char, -128, 127, 7, true)
ELV_LIMITS(signed char, -128, 127, 7, true)
ELV_LIMITS(uchar, 0, 255, 8, false)
ELV_LIMITS(short, -32768, 32767, 15, true)
ELV_LIMITS(ushort, 0, 65535, 16, false)
ELV_LIMITS(int, INT_MIN, INT_MAX, 31, true)
ELV_LIMITS(uint, 0, UINT_MAX, 32, false)
ELV_LIMITS(long, LONG_MIN, LONG_MAX, 63, true)
ELV_LIMITS(ulong, 0, ULONG_MAX, 64, false)
#undef ELV_LIMITS

#define ELV_LIMITS(T, least, most, step, tiny, bits, exponent)                                       \
  template <> struct _numeric_limits_impl<T> {                                                       \
    static constexpr bool is_specialized = true, is_signed = true, is_integer = false, is_exact = false; \
    static constexpr bool has_infinity = true, has_quiet_NaN = true, is_iec559 = true, is_bounded = true; \
    static constexpr int digits = bits, digits10 = (bits - 1) * 3 / 10, radix = 2;                   \
    static constexpr int max_exponent = exponent, min_exponent = 3 - exponent;                       \
    static constexpr T min() { return (T)least; }                                                    \
    static constexpr T max() { return (T)most; }                                                     \
    static constexpr T lowest() { return (T)(-(most)); }                                             \
    static constexpr T epsilon() { return (T)step; }                                                 \
    static constexpr T round_error() { return (T)0.5f; }                                             \
    static constexpr T infinity() { return (T)INFINITY; }                                    \
    static constexpr T quiet_NaN() { return (T)NAN; }                                 \
    static constexpr T signaling_NaN() { return (T)NAN; }                             \
    static constexpr T denorm_min() { return (T)tiny; }                                              \
  };
ELV_LIMITS(float, 1.175494351e-38f, 3.402823466e+38f, 1.192092896e-07f, 0x1p-149f, 24, 128)
ELV_LIMITS(half, 6.103515625e-05f, 65504.f, 0.0009765625f, 0x1p-24f, 11, 16)
ELV_LIMITS(bfloat, 1.175494351e-38f, 3.38953139e38f, 0.0078125f, 0x1p-133f, 8, 128)
#undef ELV_LIMITS
} // namespace metal
