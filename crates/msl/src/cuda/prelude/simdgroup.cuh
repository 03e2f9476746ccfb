// <metal_simdgroup>
#pragma once

namespace metal {
ELV_FOLD(simd_sum, 32, sum)
ELV_FOLD(simd_product, 32, product)
ELV_FOLD(simd_min, 32, minimum)
ELV_FOLD(simd_max, 32, maximum)
ELV_FOLD(simd_and, 32, bit_and)
ELV_FOLD(simd_or, 32, bit_or)
ELV_FOLD(simd_xor, 32, bit_xor)
ELV_SCAN(simd_prefix_inclusive_sum, 32, sum, true)
ELV_SCAN(simd_prefix_exclusive_sum, 32, sum, false)
ELV_SCAN(simd_prefix_inclusive_product, 32, product, true)
ELV_SCAN(simd_prefix_exclusive_product, 32, product, false)
template <class T> __forceinline__ T simd_broadcast(T value, ushort lane, ELV_AMONG) { return elv::take(value, lane, among); }
template <class T> __forceinline__ T simd_broadcast_first(T value, ELV_AMONG) { return elv::take_first<32>(value, among); }
template <class T> __forceinline__ T simd_shuffle(T value, ushort lane, ELV_AMONG) { return elv::take(value, lane, among); }
template <class T> __forceinline__ T simd_shuffle_xor(T value, ushort mask, ELV_AMONG) { return elv::take_xor(value, mask, among); }
template <class T> __forceinline__ T simd_shuffle_up(T value, ushort delta, ELV_AMONG) { return elv::take_up(value, delta, 32, among); }
template <class T> __forceinline__ T simd_shuffle_down(T value, ushort delta, ELV_AMONG) { return elv::take_down(value, delta, 32, among); }
template <class T> __forceinline__ T simd_shuffle_rotate_up(T value, ushort delta, ELV_AMONG) { return elv::take(value, (elv::lane() - delta) & 31, among); }
template <class T> __forceinline__ T simd_shuffle_rotate_down(T value, ushort delta, ELV_AMONG) { return elv::take(value, (elv::lane() + delta) & 31, among); }
template <class T> __forceinline__ T simd_shuffle_and_fill_up(T value, T fill, ushort delta, ushort modulo = 32, ELV_AMONG) {
  return elv::shift_and_fill<true>(value, fill, delta, modulo, among);
}
template <class T> __forceinline__ T simd_shuffle_and_fill_down(T value, T fill, ushort delta, ushort modulo = 32, ELV_AMONG) {
  return elv::shift_and_fill<false>(value, fill, delta, modulo, among);
}

struct simd_vote {
  typedef ulong vote_t;
  vote_t votes;
  simd_vote() = default;
  explicit constexpr simd_vote(vote_t v) : votes(v) {}
  explicit constexpr operator vote_t() const { return votes; }
  constexpr bool all() const { return (uint)votes == ~0u; }
  constexpr bool any() const { return votes != 0; }
};
__forceinline__ simd_vote simd_ballot(bool value, ELV_AMONG) { return simd_vote((ulong)::__ballot_sync(among, value)); }
__forceinline__ simd_vote simd_active_threads_mask(uint among = ::__activemask()) { return simd_vote((ulong)among); }
__forceinline__ bool simd_all(bool value, ELV_AMONG) { return ::__ballot_sync(among, !value) == 0; }
__forceinline__ bool simd_any(bool value, ELV_AMONG) { return ::__ballot_sync(among, value) != 0; }
__forceinline__ bool simd_is_first(uint among = ::__activemask()) { return (among & ((1u << elv::lane()) - 1)) == 0; }
__forceinline__ bool simd_is_helper_thread() { return false; }
} // namespace metal
