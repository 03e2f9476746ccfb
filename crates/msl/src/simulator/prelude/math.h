// <metal_math>: computed in float and rounded to the argument's type, for scalars and elementwise for vectors. As in Metal, bfloat has no functions
// of its own: it converts to float, and so is the result.
#pragma once

namespace metal {
#define ELV_UNARY(name, expression)                                                                 \
  inline float name(float x) { return (expression); }                                               \
  inline half name(half a) { float x = a; return (half)(expression); }                              \
  template <class I, class = enable_if_t<is_integral_v<I>>> inline float name(I a) { float x = a; return (expression); } \
  template <class T, int N> inline vec<T, N> name(vec<T, N> a) { return elv::map(a, [](T p) { return (T)name(p); }); }
ELV_UNARY(exp, elv::elementary::exp(x))
ELV_UNARY(exp2, elv::elementary::exp2(x))
ELV_UNARY(exp10, elv::elementary::exp10(x))
ELV_UNARY(log, elv::elementary::log(x))
ELV_UNARY(log2, elv::elementary::log2(x))
ELV_UNARY(log10, elv::elementary::log10(x))
ELV_UNARY(sqrt, __builtin_sqrtf(x))
ELV_UNARY(rsqrt, 1.0f / __builtin_sqrtf(x))
ELV_UNARY(sin, elv::elementary::sin(x))
ELV_UNARY(cos, elv::elementary::cos(x))
ELV_UNARY(tan, elv::elementary::tan(x))
ELV_UNARY(asin, elv::elementary::asin(x))
ELV_UNARY(acos, elv::elementary::acos(x))
ELV_UNARY(atan, elv::elementary::atan(x))
ELV_UNARY(sinh, elv::elementary::sinh(x))
ELV_UNARY(cosh, elv::elementary::cosh(x))
ELV_UNARY(tanh, elv::elementary::tanh(x))
ELV_UNARY(asinh, elv::elementary::asinh(x))
ELV_UNARY(acosh, elv::elementary::acosh(x))
ELV_UNARY(atanh, elv::elementary::atanh(x))
ELV_UNARY(sinpi, elv::elementary::sinpi(x))
ELV_UNARY(cospi, elv::elementary::cospi(x))
ELV_UNARY(tanpi, elv::elementary::tanpi(x))
ELV_UNARY(floor, __builtin_floorf(x))
ELV_UNARY(ceil, __builtin_ceilf(x))
ELV_UNARY(trunc, __builtin_truncf(x))
ELV_UNARY(round, __builtin_roundf(x))
ELV_UNARY(rint, __builtin_rintf(x))
ELV_UNARY(fract, __builtin_fminf(x - __builtin_floorf(x), 0x1.fffffep-1f))
ELV_UNARY(fabs, __builtin_fabsf(x))
ELV_UNARY(saturate, __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f))
ELV_UNARY(sign, x > 0 ? 1.0f : x < 0 ? -1.0f : ELV_COMPUTED(float, x == 0 ? x : 0.0f))
#undef ELV_UNARY

#define ELV_BINARY(name, expression)                                                                                             \
  inline float name(float x, float y) { return (expression); }                                                                   \
  inline half name(half a, half b) { float x = a, y = b; return (half)(expression); }                                            \
  template <class A, class B, class = enable_if_t<elv::are_mixed_scalars<A, B> || (is_integral_v<A> && is_integral_v<B>)>> \
  inline float name(A a, B b) { float x = a, y = b; return (expression); }                                                       \
  template <class T, int N> inline vec<T, N> name(vec<T, N> a, vec<T, N> b) {                                                    \
    return elv::map(a, b, [](T p, T q) { return (T)name(p, q); });                                                               \
  }                                                                                                                              \
  template <class T, int N, class S, class = enable_if_t<elv::is_scalar_for<S, T>>> inline vec<T, N> name(vec<T, N> a, S b) {    \
    return name(a, vec<T, N>(b));                                                                                                \
  }                                                                                                                              \
  template <class T, int N, class S, class = enable_if_t<elv::is_scalar_for<S, T>>> inline vec<T, N> name(S a, vec<T, N> b) {    \
    return name(vec<T, N>(a), b);                                                                                                \
  }
ELV_BINARY(pow, elv::elementary::pow(x, y))
ELV_BINARY(powr, elv::elementary::pow(x, y))
ELV_BINARY(fmod, __builtin_fmodf(x, y))
ELV_BINARY(atan2, elv::elementary::atan2(x, y))
ELV_BINARY(copysign, __builtin_copysignf(x, y))
ELV_BINARY(fmin, __builtin_fminf(x, y))
ELV_BINARY(fmax, __builtin_fmaxf(x, y))
ELV_BINARY(fdim, __builtin_fdimf(x, y))
ELV_BINARY(step, y < x ? 0.0f : 1.0f)
ELV_BINARY(divide, x / y)
#undef ELV_BINARY
template <class T> inline T fmin3(T a, T b, T c) { return fmin(a, fmin(b, c)); }
template <class T> inline T fmax3(T a, T b, T c) { return fmax(a, fmax(b, c)); }
template <class T> inline T fmedian3(T a, T b, T c) { return fmax(fmin(a, b), fmin(fmax(a, b), c)); }

inline float nextafter(float x, float y) { return __builtin_nextafterf(x, y); }
inline half nextafter(half x, half y) {
  if (x != x || y != y) return x + y;
  if (x == y) return y;
  short bits = __builtin_bit_cast(short, x);
  if (x == 0) return __builtin_bit_cast(half, (short)(y > 0 ? 1 : 0x8001));
  return __builtin_bit_cast(half, (short)(bits + ((y > x) == (x > 0) ? 1 : -1)));
}

inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline half fma(half a, half b, half c) { return __builtin_fmaf16(a, b, c); }
template <class A, class B, class C, class = enable_if_t<elv::are_mixed_scalars<A, B> || elv::are_mixed_scalars<B, C>>> inline float fma(A a, B b, C c) {
  return __builtin_fmaf((float)a, (float)b, (float)c);
}
template <class T, int N> inline vec<T, N> fma(vec<T, N> a, vec<T, N> b, vec<T, N> c) {
  return elv::map(a, b, c, [](T p, T q, T r) { return fma(p, q, r); });
}
template <class T, int N, class S, class = enable_if_t<elv::is_scalar_for<S, T>>> inline vec<T, N> fma(vec<T, N> a, S b, vec<T, N> c) {
  return fma(a, vec<T, N>(b), c);
}
template <class T, int N, class S, class = enable_if_t<elv::is_scalar_for<S, T>>> inline vec<T, N> fma(S a, vec<T, N> b, vec<T, N> c) {
  return fma(vec<T, N>(a), b, c);
}

inline float ldexp(float x, int e) { return __builtin_ldexpf(x, e); }
inline half ldexp(half x, int e) { return (half)__builtin_ldexpf((float)x, e); }
template <class T, int N> inline vec<T, N> ldexp(vec<T, N> x, vec<int, N> e) {
  return elv::map(x, e, [](T p, int q) { return ldexp(p, q); });
}
template <class T> inline T frexp(T x, thread int& exponent) {
  int e;
  float fraction = __builtin_frexpf((float)x, (__private int*)&e);
  exponent = e;
  return (T)fraction;
}
template <class T, int N> inline vec<T, N> frexp(vec<T, N> x, thread vec<int, N>& exponent) {
  vec<T, N> r;
  for (int i = 0; i < N; i++) {
    int e;
    r.lanes[i] = frexp(x.lanes[i], e);
    exponent.lanes[i] = e;
  }
  return r;
}
template <class T, enable_if_t<is_floating_point_v<T>, int> = 0> inline int ilogb(T x) { return __builtin_ilogbf((float)x); }
template <class T, int N> inline vec<int, N> ilogb(vec<T, N> x) { return elv::map(x, [](T p) { return ilogb(p); }); }
template <class T> inline T modf(T x, thread elv::value_t<T>& whole) {
  whole = trunc(x);
  return copysign(__builtin_isinf((float)x) ? (T)0 : (T)(x - whole), x);
}
template <class T> inline T sincos(T x, thread elv::value_t<T>& cosine) {
  cosine = cos(x);
  return sin(x);
}

// What kind of number it is.
#define ELV_PREDICATE(name, expression)                                                                 \
  constexpr bool name(float x) { return (expression); }                                                 \
  constexpr bool name(half a) { float x = a; return (expression); }                                     \
  template <class I, class = enable_if_t<is_integral_v<I>>> constexpr bool name(I a) { float x = a; return (expression); } \
  template <class T, int N> constexpr vec<bool, N> name(vec<T, N> a) { return elv::map(a, [](T p) { return name(p); }); }
ELV_PREDICATE(isnan, __builtin_isnan(x))
ELV_PREDICATE(isinf, __builtin_isinf(x))
ELV_PREDICATE(isfinite, __builtin_isfinite(x))
ELV_PREDICATE(signbit, (bool)__builtin_signbit(x))
#undef ELV_PREDICATE
constexpr bool isnormal(float x) { return __builtin_isnormal(x); }
constexpr bool isnormal(half x) { return x == x && __builtin_fabsf((float)x) >= 0x1p-14f && __builtin_isfinite((float)x); }
template <class T, int N> constexpr vec<bool, N> isnormal(vec<T, N> a) { return elv::map(a, [](T p) { return isnormal(p); }); }
template <class A, class B> constexpr auto isordered(A a, B b) { return a == a && b == b; }
template <class A, class B> constexpr auto isunordered(A a, B b) { return !isordered(a, b); }

template <class T, enable_if_t<is_integral_v<T>, int> = 0> constexpr T abs(T a) { return a < 0 ? (T)-a : a; }
inline float abs(float x) { return __builtin_fabsf(x); }
inline half abs(half x) { return __builtin_fabsf16(x); }
template <class T, int N> inline vec<T, N> abs(vec<T, N> a) { return elv::map(a, [](T p) { return abs(p); }); }

template <class T> inline T smoothstep(T low, T high, T x) {
  T t = saturate((x - low) / (high - low));
  return t * t * ((T)3 - (T)2 * t);
}

// Those that are fast or precise exist for float alone: half becomes float, and so is the result.
template <class T> inline T elv_wide(T x) { return x; }
inline float elv_wide(half x) { return x; }
#define ELV_OF_FLOAT(name) \
  template <class... A> inline auto name(A... a) { return metal::name(elv_wide(a)...); }
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
