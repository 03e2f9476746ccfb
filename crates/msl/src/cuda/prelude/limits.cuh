// <metal_limits>
#pragma once

namespace elv {
// The greatest number of an integer type.
template <class T> constexpr T greatest = (T)(((metal::make_unsigned_t<T>)~(metal::make_unsigned_t<T>)0) >> (metal::is_signed_v<T> ? 1 : 0));
template <> constexpr bool greatest<bool> = true;

template <class T> struct integer_limits {
  static constexpr bool is_specialized = true, is_signed = metal::is_signed_v<T>, is_integer = true, is_exact = true;
  static constexpr bool has_infinity = false, has_quiet_NaN = false, is_bounded = true;
  static constexpr int digits = metal::is_same_v<T, bool> ? 1 : 8 * sizeof(T) - is_signed, digits10 = digits * 3 / 10, radix = 2;
  static constexpr T min() { return (T)(is_signed ? -greatest<T> - 1 : 0); }
  static constexpr T max() { return greatest<T>; }
  static constexpr T lowest() { return min(); }
  static constexpr T epsilon() { return 0; }
  static constexpr T infinity() { return 0; }
  static constexpr T quiet_NaN() { return 0; }
  static constexpr T denorm_min() { return 0; }
};

// The constants of a floating-point type.
template <class T> struct float_constants;
#define ELV_CONSTANTS(T, least, most, step, tiny, bits, exponent)                             \
  template <> struct float_constants<T> {                                                     \
    static constexpr float min() { return least; }                                            \
    static constexpr float max() { return most; }                                             \
    static constexpr float epsilon() { return step; }                                         \
    static constexpr float denorm_min() { return tiny; }                                      \
    static constexpr int digits() { return bits; }                                            \
    static constexpr int max_exponent() { return exponent; }                                  \
  };
ELV_CONSTANTS(float, 1.175494351e-38f, 3.402823466e+38f, 1.192092896e-07f, 0x1p-149f, 24, 128)
ELV_CONSTANTS(half, 6.103515625e-05f, 65504.0f, 0.0009765625f, 0x1p-24f, 11, 16)
ELV_CONSTANTS(bfloat, 1.175494351e-38f, 3.38953139e38f, 0.0078125f, 0x1p-133f, 8, 128)
#undef ELV_CONSTANTS

template <class T> struct float_limits {
  typedef float_constants<T> constants;
  static constexpr bool is_specialized = true, is_signed = true, is_integer = false, is_exact = false;
  static constexpr bool has_infinity = true, has_quiet_NaN = true, is_iec559 = true, is_bounded = true;
  static constexpr int digits = constants::digits(), digits10 = (digits - 1) * 3 / 10, radix = 2;
  static constexpr int max_exponent = constants::max_exponent(), min_exponent = 3 - max_exponent;
  static constexpr T min() { return (T)constants::min(); }
  static constexpr T max() { return (T)constants::max(); }
  static constexpr T lowest() { return (T)-constants::max(); }
  static constexpr T epsilon() { return (T)constants::epsilon(); }
  static constexpr T round_error() { return (T)0.5f; }
  static constexpr T infinity() { return (T)INFINITY; }
  static constexpr T quiet_NaN() { return (T)NAN; }
  static constexpr T signaling_NaN() { return (T)NAN; }
  static constexpr T denorm_min() { return (T)constants::denorm_min(); }
};

struct no_limits {
  static constexpr bool is_specialized = false;
};
} // namespace elv

namespace metal {
// Specialised by libraries for their own types, so the primary defers to another template.
template <class T> struct _numeric_limits_impl
    : conditional_t<elv::is_integer<T>::value, elv::integer_limits<T>, conditional_t<elv::is_float<T>::value, elv::float_limits<T>, elv::no_limits>> {};
template <class T> struct numeric_limits : _numeric_limits_impl<elv::value_t<T>> {};
} // namespace metal
