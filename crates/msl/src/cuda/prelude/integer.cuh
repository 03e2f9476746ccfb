// <metal_integer>
#pragma once

// Clang's, which Metal texts use in constants.
#ifndef __clang__
constexpr int __builtin_popcount(uint a) {
  int n = 0;
  for (; a != 0; a &= a - 1) n++;
  return n;
}
constexpr int __builtin_ctz(uint a) { return __builtin_popcount((a & (0u - a)) - 1); }
constexpr int __builtin_clz(uint a) {
  int n = 0;
  for (; n < 32 && (a >> (31 - n) & 1) == 0; n++) {}
  return n;
}
#endif

namespace elv {
template <class T> constexpr int bits_of = 8 * sizeof(T);
template <class T> using only_integer = metal::enable_if_t<metal::is_integral_v<T>, int>;
} // namespace elv

namespace metal {
template <class T, elv::only_integer<T> = 0> __forceinline__ T popcount(T a) {
  auto u = (make_unsigned_t<T>)a;
  return (T)(sizeof(T) == 8 ? ::__popcll(u) : ::__popc(u));
}
// Of zero: the number of bits.
template <class T, elv::only_integer<T> = 0> __forceinline__ T clz(T a) {
  auto u = (make_unsigned_t<T>)a;
  return (T)(sizeof(T) == 8 ? ::__clzll(u) : ::__clz(u) - (32 - elv::bits_of<T>));
}
template <class T, elv::only_integer<T> = 0> __forceinline__ T ctz(T a) {
  auto u = (make_unsigned_t<T>)a;
  if constexpr (sizeof(T) == 8)
    return (T)::__clzll(::__brevll(u));
  else
    return (T)::__clz(::__brev(sizeof(T) == 4 ? (uint)u : (uint)u | 1u << (elv::bits_of<T> & 31)));
}
template <class T, elv::only_integer<T> = 0> __forceinline__ T reverse_bits(T a) {
  auto u = (make_unsigned_t<T>)a;
  return (T)(sizeof(T) == 8 ? ::__brevll(u) : ::__brev(u) >> (32 - elv::bits_of<T>) % 32);
}
template <class T, elv::only_integer<T> = 0> constexpr T rotate(T a, T b) {
  typedef make_unsigned_t<T> U;
  U u = (U)a, n = (U)((U)b & (elv::bits_of<T> - 1));
  return (T)(n ? (U)(u << n) | (U)(u >> (elv::bits_of<T> - n)) : u);
}
template <class T, elv::only_integer<T> = 0> constexpr T extract_bits(T a, uint offset, uint bits) {
  if (bits == 0) return 0;
  typedef make_unsigned_t<T> U;
  uint above = elv::bits_of<T> - offset - bits;
  return (T)((T)(U)((U)a << above) >> (elv::bits_of<T> - bits));
}
template <class T, elv::only_integer<T> = 0> constexpr T insert_bits(T base, T insert, uint offset, uint bits) {
  if (bits == 0) return base;
  ulong mask = (~0ul >> (64 - bits)) << offset;
  return (T)(((ulong)base & ~mask) | (((ulong)insert << offset) & mask));
}
template <class T, elv::only_integer<T> = 0> __forceinline__ T mulhi(T a, T b) {
  if constexpr (sizeof(T) == 8 && is_unsigned_v<T>)
    return (T)::__umul64hi(a, b);
  else if constexpr (sizeof(T) == 8)
    return (T)::__mul64hi(a, b);
  else
    return (T)(((long)a * (long)b) >> elv::bits_of<T>);
}
template <class T, elv::only_integer<T> = 0> constexpr T madhi(T a, T b, T c) { return (T)(mulhi(a, b) + c); }
template <class T, elv::only_integer<T> = 0> constexpr T mul24(T a, T b) { return (T)(a * b); }
template <class T, elv::only_integer<T> = 0> constexpr T mad24(T a, T b, T c) { return (T)(a * b + c); }
template <class T, elv::only_integer<T> = 0> constexpr make_unsigned_t<T> absdiff(T a, T b) {
  typedef make_unsigned_t<T> U;
  return a > b ? (U)((U)a - (U)b) : (U)((U)b - (U)a);
}
template <class T, elv::only_integer<T> = 0> constexpr T hadd(T a, T b) { return (T)((a & b) + ((a ^ b) >> 1)); }
template <class T, elv::only_integer<T> = 0> constexpr T rhadd(T a, T b) { return (T)((a | b) - ((a ^ b) >> 1)); }
template <class T, elv::only_integer<T> = 0> __forceinline__ T addsat(T a, T b) {
  T r = (T)((make_unsigned_t<T>)a + (make_unsigned_t<T>)b);
  if constexpr (is_unsigned_v<T>)
    return r < a ? numeric_limits<T>::max() : r;
  else
    return (T)((a ^ r) & (b ^ r)) < 0 ? (b < 0 ? numeric_limits<T>::min() : numeric_limits<T>::max()) : r;
}
template <class T, elv::only_integer<T> = 0> __forceinline__ T subsat(T a, T b) {
  T r = (T)((make_unsigned_t<T>)a - (make_unsigned_t<T>)b);
  if constexpr (is_unsigned_v<T>)
    return b > a ? (T)0 : r;
  else
    return (T)((a ^ b) & (a ^ r)) < 0 ? (b > 0 ? numeric_limits<T>::min() : numeric_limits<T>::max()) : r;
}
template <class T, elv::only_integer<T> = 0> __forceinline__ T madsat(T a, T b, T c) {
  if constexpr (sizeof(T) < 8) {
    // The product of two 32-bit numbers and a third fit in 64 bits.
    auto wide = (conditional_t<is_unsigned_v<T>, ulong, long>)a * b + c;
    return wide < numeric_limits<T>::min() ? numeric_limits<T>::min() : wide > numeric_limits<T>::max() ? numeric_limits<T>::max() : (T)wide;
  } else {
    T high = mulhi(a, b), low = (T)((ulong)a * (ulong)b), r = (T)((ulong)low + (ulong)c);
    if constexpr (is_unsigned_v<T>) {
      return high != 0 || r < low ? numeric_limits<T>::max() : r;
    } else {
      high += (T)((ulong)r < (ulong)low) + (c >> 63);
      return high == r >> 63 ? r : high < 0 ? numeric_limits<T>::min() : numeric_limits<T>::max();
    }
  }
}

#define ELV_MAP(name) \
  template <class T, int N> inline auto name(vec<T, N> a) { return elv::map(a, [](T p) { return name(p); }); }
ELV_MAP(popcount)
ELV_MAP(clz)
ELV_MAP(ctz)
ELV_MAP(reverse_bits)
#undef ELV_MAP
#define ELV_MAP(name) \
  template <class T, int N> inline auto name(vec<T, N> a, vec<T, N> b) { return elv::map(a, b, [](T p, T q) { return name(p, q); }); }
ELV_MAP(rotate)
ELV_MAP(mulhi)
ELV_MAP(mul24)
ELV_MAP(absdiff)
ELV_MAP(hadd)
ELV_MAP(rhadd)
ELV_MAP(addsat)
ELV_MAP(subsat)
#undef ELV_MAP
#define ELV_MAP(name)                                                                        \
  template <class T, int N> inline auto name(vec<T, N> a, vec<T, N> b, vec<T, N> c) {        \
    return elv::map(a, b, c, [](T p, T q, T r) { return name(p, q, r); });                   \
  }
ELV_MAP(madhi)
ELV_MAP(mad24)
ELV_MAP(madsat)
#undef ELV_MAP
template <class T, int N> inline vec<T, N> extract_bits(vec<T, N> a, uint offset, uint bits) {
  vec<T, N> r;
  for (int i = 0; i < N; i++) r[i] = extract_bits(a[i], offset, bits);
  return r;
}
template <class T, int N> inline vec<T, N> insert_bits(vec<T, N> base, vec<T, N> insert, uint offset, uint bits) {
  vec<T, N> r;
  for (int i = 0; i < N; i++) r[i] = insert_bits(base[i], insert[i], offset, bits);
  return r;
}
} // namespace metal
