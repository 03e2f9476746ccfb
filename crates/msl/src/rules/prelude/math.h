// <metal_math>, <metal_relational>, <metal_common>: functions of float, half and their vectors. bfloat has none of its own.
#pragma once

namespace metal {
#define ELV_EACH(M, ...) M(float, __VA_ARGS__) M(half, __VA_ARGS__)
#define ELV_WIDTHS(M, T, ...) M(T, int, bool, __VA_ARGS__) M(T##2, int2, bool2, __VA_ARGS__) M(T##3, int3, bool3, __VA_ARGS__) M(T##4, int4, bool4, __VA_ARGS__)
#define ELV_F1(V, I, B, name) V name(V);
#define ELV_F2(V, I, B, name) V name(V, V);
#define ELV_F3(V, I, B, name) V name(V, V, V);
#define ELV_FI(V, I, B, name) V name(V, I);
#define ELV_FV(V, I, B, name) V name(V, thread V&);
#define ELV_FR(V, I, B, name) V name(V, thread I&);
#define ELV_IF(V, I, B, name) I name(V);
#define ELV_BF(V, I, B, name) B name(V);
#define ELV_BFF(V, I, B, name) B name(V, V);
#define ELV_FUNCTION(M, name) ELV_WIDTHS(M, float, name) ELV_WIDTHS(M, half, name)
// Of an integer, in float.
#define ELV_UNARY(name) ELV_FUNCTION(ELV_F1, name) template <class I, class = enable_if_t<is_integral_v<I>>> float name(I);
#define ELV_MATH                                                                                                                         \
  ELV_UNARY(exp) ELV_UNARY(exp2) ELV_UNARY(exp10) ELV_UNARY(log) ELV_UNARY(log2) ELV_UNARY(log10) ELV_UNARY(sqrt) ELV_UNARY(rsqrt)       \
  ELV_UNARY(sin) ELV_UNARY(cos) ELV_UNARY(tan) ELV_UNARY(asin) ELV_UNARY(acos) ELV_UNARY(atan) ELV_UNARY(sinh) ELV_UNARY(cosh)           \
  ELV_UNARY(tanh) ELV_UNARY(asinh) ELV_UNARY(acosh) ELV_UNARY(atanh) ELV_UNARY(sinpi) ELV_UNARY(cospi) ELV_UNARY(tanpi)                  \
  ELV_UNARY(floor) ELV_UNARY(ceil) ELV_UNARY(trunc) ELV_UNARY(round) ELV_UNARY(rint) ELV_UNARY(fract) ELV_UNARY(fabs)                    \
  ELV_UNARY(saturate) ELV_UNARY(sign) ELV_FUNCTION(ELV_F1, abs)                                                                          \
  ELV_FUNCTION(ELV_F2, pow) ELV_FUNCTION(ELV_F2, powr) ELV_FUNCTION(ELV_F2, fmod) ELV_FUNCTION(ELV_F2, atan2)                            \
  ELV_FUNCTION(ELV_F2, copysign) ELV_FUNCTION(ELV_F2, fmin) ELV_FUNCTION(ELV_F2, fmax) ELV_FUNCTION(ELV_F2, fdim)                        \
  ELV_FUNCTION(ELV_F2, step) ELV_FUNCTION(ELV_F2, divide) ELV_FUNCTION(ELV_F2, nextafter) ELV_FUNCTION(ELV_F2, min)                      \
  ELV_FUNCTION(ELV_F2, max) ELV_FUNCTION(ELV_F3, fma) ELV_FUNCTION(ELV_F3, clamp) ELV_FUNCTION(ELV_F3, mix)                              \
  ELV_FUNCTION(ELV_F3, smoothstep) ELV_FUNCTION(ELV_F3, min3) ELV_FUNCTION(ELV_F3, max3) ELV_FUNCTION(ELV_F3, median3)                   \
  ELV_FUNCTION(ELV_F3, fmin3) ELV_FUNCTION(ELV_F3, fmax3) ELV_FUNCTION(ELV_F3, fmedian3) ELV_FUNCTION(ELV_FI, ldexp)                     \
  ELV_FUNCTION(ELV_FV, modf) ELV_FUNCTION(ELV_FV, sincos) ELV_FUNCTION(ELV_FR, frexp) ELV_FUNCTION(ELV_IF, ilogb)                        \
  ELV_FUNCTION(ELV_BF, isnan) ELV_FUNCTION(ELV_BF, isinf) ELV_FUNCTION(ELV_BF, isfinite) ELV_FUNCTION(ELV_BF, isnormal)                  \
  ELV_FUNCTION(ELV_BF, signbit) ELV_FUNCTION(ELV_BFF, isordered) ELV_FUNCTION(ELV_BFF, isunordered)
ELV_MATH
namespace fast { ELV_MATH }
namespace precise { ELV_MATH }
#undef ELV_MATH

bool all(bool);
bool any(bool);
template <class T, int N> bool all(vec<T, N>);
template <class T, int N> bool any(vec<T, N>);
template <class T, class C> T select(T, T, C);
} // namespace metal
