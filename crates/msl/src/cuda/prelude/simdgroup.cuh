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
template <class T> __forceinline__ T simd_broadcast(T value, ushort lane) { return elv::take(value, lane); }
template <class T> __forceinline__ T simd_broadcast_first(T value) { return elv::shuffle(value, 0); }
template <class T> __forceinline__ T simd_shuffle(T value, ushort lane) { return elv::take(value, lane); }
template <class T> __forceinline__ T simd_shuffle_xor(T value, ushort mask) { return elv::take_xor(value, mask); }
template <class T> __forceinline__ T simd_shuffle_up(T value, ushort delta) { return elv::shuffle_up(value, delta, 32); }
template <class T> __forceinline__ T simd_shuffle_down(T value, ushort delta) { return elv::take_down(value, delta, 32); }
template <class T> __forceinline__ T simd_shuffle_rotate_up(T value, ushort delta) { return elv::take(value, (elv::lane() - delta) & 31); }
template <class T> __forceinline__ T simd_shuffle_rotate_down(T value, ushort delta) { return elv::take(value, (elv::lane() + delta) & 31); }
template <class T> __forceinline__ T simd_shuffle_and_fill_up(T value, T fill, ushort delta, ushort modulo = 32) {
  return elv::shift_and_fill<true>(value, fill, delta, modulo);
}
template <class T> __forceinline__ T simd_shuffle_and_fill_down(T value, T fill, ushort delta, ushort modulo = 32) {
  return elv::shift_and_fill<false>(value, fill, delta, modulo);
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
__forceinline__ simd_vote simd_ballot(bool value) { return simd_vote((ulong)::__ballot_sync(elv::all_lanes, value)); }
__forceinline__ simd_vote simd_active_threads_mask() { return simd_vote((ulong)::__activemask()); }
__forceinline__ bool simd_all(bool value) { return ::__ballot_sync(elv::all_lanes, !value) == 0; }
__forceinline__ bool simd_any(bool value) { return ::__ballot_sync(elv::all_lanes, value) != 0; }
__forceinline__ bool simd_is_first() { return (::__activemask() & ((1u << elv::lane()) - 1)) == 0; }
__forceinline__ bool simd_is_helper_thread() { return false; }
} // namespace metal
