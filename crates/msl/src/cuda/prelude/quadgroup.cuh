// <metal_quadgroup>: groups of four adjacent lanes.
#pragma once

namespace metal {
ELV_FOLD(quad_sum, 4, sum)
ELV_FOLD(quad_product, 4, product)
ELV_FOLD(quad_min, 4, minimum)
ELV_FOLD(quad_max, 4, maximum)
ELV_FOLD(quad_and, 4, bit_and)
ELV_FOLD(quad_or, 4, bit_or)
ELV_FOLD(quad_xor, 4, bit_xor)
ELV_SCAN(quad_prefix_inclusive_sum, 4, sum, true)
ELV_SCAN(quad_prefix_exclusive_sum, 4, sum, false)
ELV_SCAN(quad_prefix_inclusive_product, 4, product, true)
ELV_SCAN(quad_prefix_exclusive_product, 4, product, false)
template <class T> __forceinline__ T quad_broadcast(T value, ushort lane, ELV_AMONG) { return elv::take(value, (elv::lane() & ~3u) | (lane & 3), among); }
template <class T> __forceinline__ T quad_broadcast_first(T value, ELV_AMONG) { return elv::take_first<4>(value, among); }
template <class T> __forceinline__ T quad_shuffle(T value, ushort lane, ELV_AMONG) { return quad_broadcast(value, lane, among); }
template <class T> __forceinline__ T quad_shuffle_xor(T value, ushort mask, ELV_AMONG) { return elv::take_xor(value, mask & 3, among); }
template <class T> __forceinline__ T quad_shuffle_up(T value, ushort delta, ELV_AMONG) { return elv::take_up(value, delta, 4, among); }
template <class T> __forceinline__ T quad_shuffle_down(T value, ushort delta, ELV_AMONG) { return elv::take_down(value, delta, 4, among); }
template <class T> __forceinline__ T quad_shuffle_rotate_up(T value, ushort delta, ELV_AMONG) { return quad_broadcast(value, (ushort)(elv::lane() - delta), among); }
template <class T> __forceinline__ T quad_shuffle_rotate_down(T value, ushort delta, ELV_AMONG) { return quad_broadcast(value, (ushort)(elv::lane() + delta), among); }
template <class T> __forceinline__ T quad_shuffle_and_fill_up(T value, T fill, ushort delta, ushort modulo = 4, ELV_AMONG) {
  return elv::shift_and_fill<true>(value, fill, delta, modulo, among);
}
template <class T> __forceinline__ T quad_shuffle_and_fill_down(T value, T fill, ushort delta, ushort modulo = 4, ELV_AMONG) {
  return elv::shift_and_fill<false>(value, fill, delta, modulo, among);
}

struct quad_vote {
  typedef uint vote_t;
  vote_t votes;
  quad_vote() = default;
  explicit constexpr quad_vote(vote_t v) : votes(v) {}
  explicit constexpr operator vote_t() const { return votes; }
  constexpr bool all() const { return votes == 15; }
  constexpr bool any() const { return votes != 0; }
};
__forceinline__ quad_vote quad_ballot(bool value, ELV_AMONG) {
  return quad_vote((::__ballot_sync(among, value) >> (elv::lane() & ~3u)) & 15);
}
__forceinline__ quad_vote quad_active_threads_mask() { return quad_vote((::__activemask() >> (elv::lane() & ~3u)) & 15); }
__forceinline__ bool quad_all(bool value, ELV_AMONG) { return !quad_ballot(!value, among).any(); }
__forceinline__ bool quad_any(bool value, ELV_AMONG) { return quad_ballot(value, among).any(); }
} // namespace metal
