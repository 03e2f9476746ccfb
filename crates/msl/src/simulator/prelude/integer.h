// <metal_integer>
#pragma once

namespace elv {
template <class T> constexpr int bits_of = 8 * sizeof(T);
template <class T> using only_integer = metal::enable_if_t<metal::is_integral_v<T>, int>;
} // namespace elv

namespace metal {
template <class T, elv::only_integer<T> = 0> constexpr T popcount(T a) { return (T)__builtin_popcountl((ulong)(make_unsigned_t<T>)a); }
template <class T, elv::only_integer<T> = 0> constexpr T clz(T a) {
  auto u = (make_unsigned_t<T>)a;
  return u ? (T)(__builtin_clzl((ulong)u) - (64 - elv::bits_of<T>)) : (T)elv::bits_of<T>;
}
template <class T, elv::only_integer<T> = 0> constexpr T ctz(T a) {
  auto u = (make_unsigned_t<T>)a;
  return u ? (T)__builtin_ctzl((ulong)u) : (T)elv::bits_of<T>;
}
template <class T, elv::only_integer<T> = 0> constexpr T reverse_bits(T a) {
  return (T)(__builtin_bitreverse64((ulong)(make_unsigned_t<T>)a) >> (64 - elv::bits_of<T>));
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
template <class T, elv::only_integer<T> = 0> constexpr T mulhi(T a, T b) {
  if constexpr (sizeof(T) == 8 && is_unsigned_v<T>)
    return (T)(((unsigned __int128)a * b) >> 64);
  else if constexpr (sizeof(T) == 8)
    return (T)(((__int128)a * b) >> 64);
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
template <class T, elv::only_integer<T> = 0> inline T addsat(T a, T b) {
  T r;
  return __builtin_add_overflow(a, b, (__private T*)&r) ? (b < 0 ? numeric_limits<T>::min() : numeric_limits<T>::max()) : r;
}
template <class T, elv::only_integer<T> = 0> inline T subsat(T a, T b) {
  T r;
  return __builtin_sub_overflow(a, b, (__private T*)&r) ? (is_unsigned_v<T> || b > 0 ? numeric_limits<T>::min() : numeric_limits<T>::max()) : r;
}
template <class T, elv::only_integer<T> = 0> inline T madsat(T a, T b, T c) {
  __int128 wide = (__int128)a * b + c, low = numeric_limits<T>::min(), high = numeric_limits<T>::max();
  return (T)(wide < low ? low : wide > high ? high : wide);
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
  for (int i = 0; i < N; i++) r.lanes[i] = extract_bits(a.lanes[i], offset, bits);
  return r;
}
template <class T, int N> inline vec<T, N> insert_bits(vec<T, N> base, vec<T, N> insert, uint offset, uint bits) {
  vec<T, N> r;
  for (int i = 0; i < N; i++) r.lanes[i] = insert_bits(base.lanes[i], insert.lanes[i], offset, bits);
  return r;
}
} // namespace metal
