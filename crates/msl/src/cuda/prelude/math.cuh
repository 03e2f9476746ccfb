// <metal_math>: computed in float and rounded to the argument's type, for scalars and elementwise for vectors. As in Metal, bfloat has no functions
// of its own: it converts to float, and so is the result.
#pragma once

namespace metal {
#define ELV_UNARY(name, expression)                                                                 \
  __forceinline__ float name(float x) { return (expression); }                                               \
  __forceinline__ half name(half a) { float x = a; return (half)(expression); }                              \
  template <class I, class = enable_if_t<is_integral_v<I>>> __forceinline__ float name(I a) { float x = a; return (expression); } \
  template <class T, int N> __forceinline__ vec<T, N> name(vec<T, N> a) { return elv::map(a, [](T p) { return (T)name(p); }); }
ELV_UNARY(exp, ::expf(x))
ELV_UNARY(exp2, ::exp2f(x))
ELV_UNARY(exp10, ::exp10f(x))
ELV_UNARY(log, ::logf(x))
ELV_UNARY(log2, ::log2f(x))
ELV_UNARY(log10, ::log10f(x))
ELV_UNARY(sqrt, ::sqrtf(x))
ELV_UNARY(rsqrt, 1.0f / ::sqrtf(x))
ELV_UNARY(sin, ::sinf(x))
ELV_UNARY(cos, ::cosf(x))
ELV_UNARY(tan, ::tanf(x))
ELV_UNARY(asin, ::asinf(x))
ELV_UNARY(acos, ::acosf(x))
ELV_UNARY(atan, ::atanf(x))
ELV_UNARY(sinh, ::sinhf(x))
ELV_UNARY(cosh, ::coshf(x))
ELV_UNARY(tanh, ::tanhf(x))
ELV_UNARY(asinh, ::asinhf(x))
ELV_UNARY(acosh, ::acoshf(x))
ELV_UNARY(atanh, ::atanhf(x))
ELV_UNARY(sinpi, ::sinpif(x))
ELV_UNARY(cospi, ::cospif(x))
ELV_UNARY(tanpi, ::sinpif(x) / ::cospif(x))
ELV_UNARY(floor, ::floorf(x))
ELV_UNARY(ceil, ::ceilf(x))
ELV_UNARY(trunc, ::truncf(x))
ELV_UNARY(round, ::roundf(x))
ELV_UNARY(rint, ::rintf(x))
ELV_UNARY(fract, ::fminf(x - ::floorf(x), 0x1.fffffep-1f))
ELV_UNARY(fabs, ::fabsf(x))
ELV_UNARY(saturate, ::fminf(::fmaxf(x, 0.0f), 1.0f))
ELV_UNARY(sign, x > 0 ? 1.0f : x < 0 ? -1.0f : x == 0 ? x : 0.0f)
#undef ELV_UNARY

#define ELV_BINARY(name, expression)                                                                                             \
  __forceinline__ float name(float x, float y) { return (expression); }                                                                   \
  __forceinline__ half name(half a, half b) { float x = a, y = b; return (half)(expression); }                                            \
  template <class A, class B, class = enable_if_t<elv::are_mixed_scalars<A, B> || (is_integral_v<A> && is_integral_v<B>)>> \
  __forceinline__ float name(A a, B b) { float x = a, y = b; return (expression); }                                                       \
  template <class T, int N> __forceinline__ vec<T, N> name(vec<T, N> a, vec<T, N> b) {                                                    \
    return elv::map(a, b, [](T p, T q) { return (T)name(p, q); });                                                               \
  }                                                                                                                              \
  template <class T, int N, class S, class = enable_if_t<elv::is_scalar_for<S, T>>> __forceinline__ vec<T, N> name(vec<T, N> a, S b) {    \
    return name(a, vec<T, N>(b));                                                                                                \
  }                                                                                                                              \
  template <class T, int N, class S, class = enable_if_t<elv::is_scalar_for<S, T>>> __forceinline__ vec<T, N> name(S a, vec<T, N> b) {    \
    return name(vec<T, N>(a), b);                                                                                                \
  }
ELV_BINARY(pow, ::powf(x, y))
ELV_BINARY(powr, ::powf(x, y))
ELV_BINARY(fmod, ::fmodf(x, y))
ELV_BINARY(atan2, ::atan2f(x, y))
ELV_BINARY(copysign, ::copysignf(x, y))
ELV_BINARY(fmin, ::fminf(x, y))
ELV_BINARY(fmax, ::fmaxf(x, y))
ELV_BINARY(fdim, ::fdimf(x, y))
ELV_BINARY(step, y < x ? 0.0f : 1.0f)
ELV_BINARY(divide, x / y)
#undef ELV_BINARY
template <class T> __forceinline__ T fmin3(T a, T b, T c) { return fmin(a, fmin(b, c)); }
template <class T> __forceinline__ T fmax3(T a, T b, T c) { return fmax(a, fmax(b, c)); }
template <class T> __forceinline__ T fmedian3(T a, T b, T c) { return fmax(fmin(a, b), fmin(fmax(a, b), c)); }

__forceinline__ float nextafter(float x, float y) { return ::nextafterf(x, y); }
__forceinline__ half nextafter(half x, half y) {
  if (x != x || y != y) return x + y;
  if (x == y) return y;
  short bits = __builtin_bit_cast(short, x);
  if (x == 0) return __builtin_bit_cast(half, (short)(y > 0 ? 1 : 0x8001));
  return __builtin_bit_cast(half, (short)(bits + ((y > x) == (x > 0) ? 1 : -1)));
}

__forceinline__ float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
__forceinline__ half fma(half a, half b, half c) {
  ushort r;
  asm("fma.rn.f16 %0, %1, %2, %3;" : "=h"(r) : "h"(__builtin_bit_cast(ushort, a)), "h"(__builtin_bit_cast(ushort, b)), "h"(__builtin_bit_cast(ushort, c)));
  return __builtin_bit_cast(half, r);
}
template <class A, class B, class C, class = enable_if_t<elv::are_mixed_scalars<A, B> || elv::are_mixed_scalars<B, C>>> __forceinline__ float fma(A a, B b, C c) {
  return ::fmaf((float)a, (float)b, (float)c);
}
template <class T, int N> __forceinline__ vec<T, N> fma(vec<T, N> a, vec<T, N> b, vec<T, N> c) {
  return elv::map(a, b, c, [](T p, T q, T r) { return fma(p, q, r); });
}
template <class T, int N, class S, class = enable_if_t<elv::is_scalar_for<S, T>>> __forceinline__ vec<T, N> fma(vec<T, N> a, S b, vec<T, N> c) {
  return fma(a, vec<T, N>(b), c);
}
template <class T, int N, class S, class = enable_if_t<elv::is_scalar_for<S, T>>> __forceinline__ vec<T, N> fma(S a, vec<T, N> b, vec<T, N> c) {
  return fma(vec<T, N>(a), b, c);
}

__forceinline__ float ldexp(float x, int e) { return ::ldexpf(x, e); }
__forceinline__ half ldexp(half x, int e) { return (half)::ldexpf((float)x, e); }
template <class T, int N> __forceinline__ vec<T, N> ldexp(vec<T, N> x, vec<int, N> e) {
  return elv::map(x, e, [](T p, int q) { return ldexp(p, q); });
}
template <class T> __forceinline__ T frexp(T x, int& exponent) {
  int e;
  float fraction = ::frexpf((float)x, &e);
  exponent = e;
  return (T)fraction;
}
template <class T, int N> __forceinline__ vec<T, N> frexp(vec<T, N> x, vec<int, N>& exponent) {
  vec<T, N> r;
  for (int i = 0; i < N; i++) {
    int e;
    r[i] = frexp(x[i], e);
    exponent[i] = e;
  }
  return r;
}
template <class T, enable_if_t<is_floating_point_v<T>, int> = 0> __forceinline__ int ilogb(T x) { return ::ilogbf((float)x); }
template <class T, int N> __forceinline__ vec<int, N> ilogb(vec<T, N> x) { return elv::map(x, [](T p) { return ilogb(p); }); }
// What kind of number it is.
#define ELV_PREDICATE(name, expression)                                                                 \
  constexpr bool name(float x) { return (expression); }                                                 \
  constexpr bool name(half a) { float x = a; return (expression); }                                     \
  template <class I, class = enable_if_t<is_integral_v<I>>> constexpr bool name(I a) { float x = a; return (expression); } \
  template <class T, int N> constexpr vec<bool, N> name(vec<T, N> a) { return elv::map(a, [](T p) { return name(p); }); }
ELV_PREDICATE(isnan, x != x)
ELV_PREDICATE(isinf, (__builtin_bit_cast(uint, x) & 0x7fffffffu) == 0x7f800000u)
ELV_PREDICATE(isfinite, (__builtin_bit_cast(uint, x) & 0x7fffffffu) < 0x7f800000u)
ELV_PREDICATE(signbit, __builtin_bit_cast(uint, x) >> 31 != 0)
#undef ELV_PREDICATE
constexpr bool isnormal(float x) { return (__builtin_bit_cast(uint, x) & 0x7fffffffu) - 0x800000u < 0x7f000000u; }
constexpr bool isnormal(half x) { return (ushort)((__builtin_bit_cast(ushort, x) & 0x7fffu) - 0x400u) < 0x7800u; }
template <class T, int N> constexpr vec<bool, N> isnormal(vec<T, N> a) { return elv::map(a, [](T p) { return isnormal(p); }); }
template <class T> __forceinline__ T modf(T x, elv::value_t<T>& whole) {
  whole = trunc(x);
  return copysign(isinf((float)x) ? (T)0 : (T)(x - whole), x);
}
template <class T> __forceinline__ T sincos(T x, elv::value_t<T>& cosine) {
  cosine = cos(x);
  return sin(x);
}
template <class A, class B> constexpr auto isordered(A a, B b) { return a == a && b == b; }
template <class A, class B> constexpr auto isunordered(A a, B b) { return !isordered(a, b); }

template <class T, enable_if_t<is_integral_v<T>, int> = 0> constexpr T abs(T a) { return a < 0 ? (T)-a : a; }
__forceinline__ float abs(float x) { return ::fabsf(x); }
__forceinline__ half abs(half x) { return (half)::fabsf((float)x); }
template <class T, int N> __forceinline__ vec<T, N> abs(vec<T, N> a) { return elv::map(a, [](T p) { return abs(p); }); }

template <class T> __forceinline__ T smoothstep(T low, T high, T x) {
  T t = saturate((x - low) / (high - low));
  return t * t * ((T)3 - (T)2 * t);
}

// Those that are fast or precise exist for float alone: half becomes float, and so is the result.
template <class T> __forceinline__ T elv_wide(T x) { return x; }
__forceinline__ float elv_wide(half x) { return x; }
#define ELV_OF_FLOAT(name) \
  template <class... A> __forceinline__ auto name(A... a) { return metal::name(elv_wide(a)...); }
#define ELV_MATH_NAMES                                                                                                                       \
  ELV_OF_FLOAT(exp) ELV_OF_FLOAT(exp2) ELV_OF_FLOAT(exp10) ELV_OF_FLOAT(log) ELV_OF_FLOAT(log2) ELV_OF_FLOAT(log10) ELV_OF_FLOAT(sqrt)       \
  ELV_OF_FLOAT(rsqrt) ELV_OF_FLOAT(sin) ELV_OF_FLOAT(cos) ELV_OF_FLOAT(tan) ELV_OF_FLOAT(asin) ELV_OF_FLOAT(acos) ELV_OF_FLOAT(atan)         \
  ELV_OF_FLOAT(sinh) ELV_OF_FLOAT(cosh) ELV_OF_FLOAT(tanh) ELV_OF_FLOAT(asinh) ELV_OF_FLOAT(acosh) ELV_OF_FLOAT(atanh) ELV_OF_FLOAT(sinpi)   \
  ELV_OF_FLOAT(cospi) ELV_OF_FLOAT(tanpi) ELV_OF_FLOAT(floor) ELV_OF_FLOAT(ceil) ELV_OF_FLOAT(trunc) ELV_OF_FLOAT(round) ELV_OF_FLOAT(rint)  \
  ELV_OF_FLOAT(fract) ELV_OF_FLOAT(fabs) ELV_OF_FLOAT(pow) ELV_OF_FLOAT(powr) ELV_OF_FLOAT(fmod) ELV_OF_FLOAT(atan2) ELV_OF_FLOAT(divide)    \
  using metal::abs; using metal::saturate; using metal::sign; using metal::copysign; using metal::fmin; using metal::fmax; using metal::fdim; \
  using metal::step; using metal::fma; using metal::ldexp; using metal::frexp; using metal::ilogb; using metal::modf; using metal::sincos;   \
  using metal::isnan; using metal::isinf; using metal::isfinite; using metal::isnormal; using metal::signbit; using metal::min;              \
  using metal::max; using metal::clamp; using metal::mix; using metal::smoothstep; using metal::min3; using metal::max3;                     \
  using metal::median3; using metal::fmin3; using metal::fmax3; using metal::fmedian3; using metal::nextafter;
namespace fast { ELV_MATH_NAMES }
namespace precise { ELV_MATH_NAMES }
#undef ELV_MATH_NAMES
#undef ELV_OF_FLOAT
} // namespace metal
