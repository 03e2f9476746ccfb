// The functions behind Metal's standard library. Libraries that overload it for their own types call them, with a flag for fast arithmetic.
#pragma once

#define __METAL_FAST_MATH__ 1
#define __METAL_PRECISE_MATH__ 0
#define __METAL_MAYBE_FAST_MATH__ 0

#define ELV_INTERNAL(name) \
  template <class T> inline T __metal_##name(T x, bool) { return metal::name(x); }
ELV_INTERNAL(acos)
ELV_INTERNAL(acosh)
ELV_INTERNAL(asin)
ELV_INTERNAL(asinh)
ELV_INTERNAL(atan)
ELV_INTERNAL(atanh)
ELV_INTERNAL(ceil)
ELV_INTERNAL(cos)
ELV_INTERNAL(cosh)
ELV_INTERNAL(cospi)
ELV_INTERNAL(exp)
ELV_INTERNAL(exp10)
ELV_INTERNAL(exp2)
ELV_INTERNAL(fabs)
ELV_INTERNAL(floor)
ELV_INTERNAL(fract)
ELV_INTERNAL(log)
ELV_INTERNAL(log10)
ELV_INTERNAL(log2)
ELV_INTERNAL(rint)
ELV_INTERNAL(round)
ELV_INTERNAL(rsqrt)
ELV_INTERNAL(sin)
ELV_INTERNAL(sinh)
ELV_INTERNAL(sinpi)
ELV_INTERNAL(sqrt)
ELV_INTERNAL(tan)
ELV_INTERNAL(tanh)
ELV_INTERNAL(tanpi)
ELV_INTERNAL(trunc)
#undef ELV_INTERNAL
#define ELV_INTERNAL(name) \
  template <class T> inline T __metal_##name(T x, T y, bool) { return metal::name(x, y); }
ELV_INTERNAL(atan2)
ELV_INTERNAL(copysign)
ELV_INTERNAL(divide)
ELV_INTERNAL(fdim)
ELV_INTERNAL(fmax)
ELV_INTERNAL(fmin)
ELV_INTERNAL(fmod)
ELV_INTERNAL(pow)
ELV_INTERNAL(powr)
ELV_INTERNAL(step)
#undef ELV_INTERNAL
#define ELV_INTERNAL(name) \
  template <class T> inline T __metal_##name(T x, T y, T z, bool) { return metal::name(x, y, z); }
ELV_INTERNAL(fmax3)
ELV_INTERNAL(fmedian3)
ELV_INTERNAL(fmin3)
#undef ELV_INTERNAL
template <class T> inline T __metal_fma(T x, T y, T z) { return metal::fma(x, y, z); }
template <class T> inline T __metal_ldexp(T x, int exponent, bool) { return metal::ldexp(x, exponent); }
template <class T> inline T __metal_frexp(T x, ELV_THREAD int* exponent) { return metal::frexp(x, *exponent); }
template <class T> inline T __metal_modf(T x, ELV_THREAD elv::value_t<T>* whole) { return metal::modf(x, *whole); }
template <class T> inline T __metal_nextafter(T x, T y) { return metal::nextafter(x, y); }
inline ushort __metal_get_simdgroup_size(ushort) { return elv::simd_width; }

#define ELV_INTERNAL(name) \
  template <class T> inline T __metal_simd_##name(T x ELV_AND_HERE) { return metal::simd_##name(x ELV_PASS_HERE); }
ELV_INTERNAL(sum)
ELV_INTERNAL(product)
ELV_INTERNAL(min)
ELV_INTERNAL(max)
ELV_INTERNAL(and)
ELV_INTERNAL(or)
ELV_INTERNAL(xor)
ELV_INTERNAL(prefix_inclusive_sum)
ELV_INTERNAL(prefix_exclusive_sum)
ELV_INTERNAL(prefix_inclusive_product)
ELV_INTERNAL(prefix_exclusive_product)
#undef ELV_INTERNAL
#define ELV_INTERNAL(name) \
  template <class T> inline T __metal_simd_##name(T x, ushort lane ELV_AND_HERE) { return metal::simd_##name(x, lane ELV_PASS_HERE); }
ELV_INTERNAL(broadcast)
ELV_INTERNAL(shuffle)
ELV_INTERNAL(shuffle_xor)
ELV_INTERNAL(shuffle_up)
ELV_INTERNAL(shuffle_down)
ELV_INTERNAL(shuffle_rotate_up)
ELV_INTERNAL(shuffle_rotate_down)
#undef ELV_INTERNAL
template <class T> inline T __metal_simd_shuffle_and_fill_up(T x, T fill, ushort delta, ushort modulo ELV_AND_HERE) {
  return metal::simd_shuffle_and_fill_up(x, fill, delta, modulo ELV_PASS_HERE);
}
template <class T> inline T __metal_simd_shuffle_and_fill_down(T x, T fill, ushort delta, ushort modulo ELV_AND_HERE) {
  return metal::simd_shuffle_and_fill_down(x, fill, delta, modulo ELV_PASS_HERE);
}
