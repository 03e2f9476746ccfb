// half and bfloat: arithmetic in float, rounded to nearest even. CUDA's own types live in headers that not every machine has; clang has its own.
#pragma once

namespace elv {
template <class T> constexpr bool is_narrow = false;
template <> constexpr bool is_narrow<half> = true;
template <> constexpr bool is_narrow<bfloat> = true;
} // namespace elv

#ifndef __clang__
namespace elv {
// To the nearest, ties to even; NaN stays NaN. In integers, for constants.
constexpr ushort half_bits(float x) {
  uint bits = __builtin_bit_cast(uint, x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return (ushort)(sign | 0x7e00u);
  if (magnitude >= 0x47800000u) return (ushort)(sign | 0x7c00u);
  if (magnitude < 0x33000000u) return (ushort)sign;
  if (magnitude >= 0x38800000u) return (ushort)(sign | ((magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1)) >> 13));
  uint shift = 126 - (magnitude >> 23), mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  return (ushort)(sign | ((mantissa + (1u << (shift - 1)) - 1 + (mantissa >> shift & 1)) >> shift));
}
constexpr float half_value(ushort bits) {
  uint sign = (uint)(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00u) return __builtin_bit_cast(float, sign | 0x7f800000u | (magnitude & 0x3ff) << 13);
  if (magnitude < 0x400u) return (sign ? -1.0f : 1.0f) * (float)magnitude * 0x1p-24f;
  return __builtin_bit_cast(float, sign | (magnitude << 13) + 0x38000000u);
}
constexpr ushort bfloat_bits(float x) {
  uint bits = __builtin_bit_cast(uint, x);
  return (ushort)(x != x ? bits >> 16 | 0x40u : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
constexpr float bfloat_value(ushort bits) { return __builtin_bit_cast(float, (uint)bits << 16); }

__forceinline__ ushort round_to_half(float x) {
  ushort bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
__forceinline__ float half_to_float(ushort bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}
__forceinline__ ushort round_to_bfloat(float x) {
#if __CUDA_ARCH__ >= 800
  // The upper half of a pair whose lower half is zero, which is the rounded number as a float: widening costs nothing then.
  uint bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(x), "f"(0.0f));
  __builtin_assume((bits & 0xffffu) == 0);
  return (ushort)(bits >> 16);
#else
  return bfloat_bits(x);
#endif
}
} // namespace elv

#define ELV_NARROW(T, U, from_float, from_constant, to_float, to_constant)                                                         \
  struct T {                                                                                                                       \
    ushort bits;                                                                                                                   \
    T() = default;                                                                                                                 \
    constexpr __forceinline__ T(float x) : bits(__builtin_is_constant_evaluated() ? from_constant(x) : from_float(x)) {}           \
    template <class I, class = metal::enable_if_t<elv::is_integer<I>::value || metal::is_same_v<I, double>>> constexpr __forceinline__ T(I x) : T((float)x) {}    \
    explicit constexpr T(U x);                                                                                                     \
    constexpr __forceinline__ operator float() const { return __builtin_is_constant_evaluated() ? to_constant(bits) : to_float(bits); } \
    template <class A> constexpr __forceinline__ T& operator+=(A a) { return *this = T(*this + a); }                               \
    template <class A> constexpr __forceinline__ T& operator-=(A a) { return *this = T(*this - a); }                               \
    template <class A> constexpr __forceinline__ T& operator*=(A a) { return *this = T(*this * a); }                               \
    template <class A> constexpr __forceinline__ T& operator/=(A a) { return *this = T(*this / a); }                               \
    constexpr __forceinline__ T& operator++() { return *this += 1.0f; }                                                            \
    constexpr __forceinline__ T& operator--() { return *this -= 1.0f; }                                                            \
    friend constexpr __forceinline__ T operator+(T a) { return a; }                                                                \
    friend constexpr __forceinline__ T operator-(T a) { return __builtin_bit_cast(T, (ushort)(a.bits ^ 0x8000)); }                 \
  };
ELV_NARROW(half, bfloat, elv::round_to_half, elv::half_bits, elv::half_to_float, elv::half_value)
ELV_NARROW(bfloat, half, elv::round_to_bfloat, elv::bfloat_bits, elv::bfloat_value, elv::bfloat_value)
#undef ELV_NARROW
constexpr half::half(bfloat x) : half((float)x) {}
constexpr bfloat::bfloat(half x) : bfloat((float)x) {}

namespace elv {
// What an operation on two numbers gives, one of them narrow: of two floating-point types the wider one.
template <class A, class B, bool = (is_narrow<A> || is_narrow<B>)> struct narrow_result {};
template <class T> struct narrow_result<T, T, true> { typedef T type; };
template <class T> struct narrow_result<T, float, true> { typedef float type; };
template <class T> struct narrow_result<float, T, true> { typedef float type; };
template <> struct narrow_result<half, bfloat, true> { typedef float type; };
template <> struct narrow_result<bfloat, half, true> { typedef float type; };
template <class T, class I> struct narrow_result<T, I, true> : metal::enable_if<is_narrow<T> ? is_integer<I>::value : is_integer<T>::value, metal::conditional_t<is_narrow<T>, T, I>> {};
template <class A, class B> using narrow_t = typename narrow_result<A, B>::type;
} // namespace elv

#define ELV_OPERATOR(op) \
  template <class A, class B, class R = elv::narrow_t<A, B>> constexpr __forceinline__ R operator op(A a, B b) { return R((float)a op(float) b); }
ELV_OPERATOR(+)
ELV_OPERATOR(-)
ELV_OPERATOR(*)
ELV_OPERATOR(/)
#undef ELV_OPERATOR
#define ELV_OPERATOR(op) \
  template <class A, class B, class = elv::narrow_t<A, B>> constexpr __forceinline__ bool operator op(A a, B b) { return (float)a op(float) b; }
ELV_OPERATOR(==)
ELV_OPERATOR(!=)
ELV_OPERATOR(<)
ELV_OPERATOR(>)
ELV_OPERATOR(<=)
ELV_OPERATOR(>=)
#undef ELV_OPERATOR
#endif
