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
ELV_FIRST(simd_broadcast_first, 32)
ELV_SCAN(simd_prefix_inclusive_sum, 32, sum, true)
ELV_SCAN(simd_prefix_exclusive_sum, 32, sum, false)
ELV_SCAN(simd_prefix_inclusive_product, 32, product, true)
ELV_SCAN(simd_prefix_exclusive_product, 32, product, false)
ELV_PERMUTE(simd_broadcast, argument)
ELV_PERMUTE(simd_shuffle, argument)
ELV_PERMUTE(simd_shuffle_xor, lane ^ argument)
ELV_PERMUTE(simd_shuffle_up, lane - argument)
ELV_PERMUTE(simd_shuffle_down, lane + argument)
ELV_PERMUTE(simd_shuffle_rotate_up, (lane - argument) & 31)
ELV_PERMUTE(simd_shuffle_rotate_down, (lane + argument) & 31)
} // namespace metal

namespace elv {
template <class T> struct fill_slot {
  T value, fill, result;
  uint delta, modulo;
};
// Shifts within groups of `modulo` lanes; what would come from outside the group comes from the filling values instead.
template <class T, bool Up> ELV_PLAIN void shift_and_fill(void** slots, uint active) {
  for (uint i = 0; i < simd_width; i++) {
    if (!is_active(active, i)) continue;
    fill_slot<T>* own = (fill_slot<T>*)slots[i];
    uint base = i / own->modulo * own->modulo, at = i % own->modulo;
    bool inside = Up ? at >= own->delta : at + own->delta < own->modulo;
    uint from = base + (Up ? at + own->modulo - own->delta : at + own->delta) % own->modulo;
    fill_slot<T>* other = is_active(active, from) ? (fill_slot<T>*)slots[from] : own;
    own->result = inside ? other->value : other->fill;
  }
}
template <class T, bool Up>
ELV_PLAIN inline T shuffle_and_fill(T value, T fill, ushort delta, ushort modulo, elv_text operation, elv_text file, int line) {
  fill_slot<T> own;
  own.value = value;
  own.fill = fill;
  own.delta = delta;
  own.modulo = modulo;
  elv_collective(&shift_and_fill<T, Up>, &own, operation, file, line);
  return own.result;
}

enum class vote { ballot, all, any, active };
template <vote V> ELV_PLAIN void count_votes(void** slots, uint active) {
  ulong set = 0;
  for (uint i = 0; i < simd_width; i++)
    if (is_active(active, i) && ((slot<bool, ulong>*)slots[i])->value) set |= 1ul << i;
  ulong result = V == vote::ballot ? set : V == vote::all ? (ulong)(set == active) : V == vote::any ? (ulong)(set != 0) : (ulong)active;
  for (uint i = 0; i < simd_width; i++)
    if (is_active(active, i)) ((slot<bool, ulong>*)slots[i])->result = result;
}
template <vote V> ELV_PLAIN inline ulong cast_vote(bool value, elv_text operation, elv_text file, int line) {
  slot<bool, ulong> own;
  own.value = value;
  elv_collective(&count_votes<V>, &own, operation, file, line);
  return own.result;
}
} // namespace elv

namespace metal {
template <class T> inline T simd_shuffle_and_fill_up(T value, T fill, ushort delta, ushort modulo, ELV_HERE) {
  return elv::shuffle_and_fill<T, true>(value, fill, delta, modulo, "simd_shuffle_and_fill_up", file, line);
}
template <class T> inline T simd_shuffle_and_fill_up(T value, T fill, ushort delta, ELV_HERE) {
  return elv::shuffle_and_fill<T, true>(value, fill, delta, 32, "simd_shuffle_and_fill_up", file, line);
}
template <class T> inline T simd_shuffle_and_fill_down(T value, T fill, ushort delta, ushort modulo, ELV_HERE) {
  return elv::shuffle_and_fill<T, false>(value, fill, delta, modulo, "simd_shuffle_and_fill_down", file, line);
}
template <class T> inline T simd_shuffle_and_fill_down(T value, T fill, ushort delta, ELV_HERE) {
  return elv::shuffle_and_fill<T, false>(value, fill, delta, 32, "simd_shuffle_and_fill_down", file, line);
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
inline simd_vote simd_ballot(bool value, ELV_HERE) { return simd_vote(elv::cast_vote<elv::vote::ballot>(value, "simd_ballot", file, line)); }
inline simd_vote simd_active_threads_mask(ELV_HERE) { return simd_vote(elv::cast_vote<elv::vote::active>(true, "simd_active_threads_mask", file, line)); }
inline bool simd_all(bool value, ELV_HERE) { return elv::cast_vote<elv::vote::all>(value, "simd_all", file, line); }
inline bool simd_any(bool value, ELV_HERE) { return elv::cast_vote<elv::vote::any>(value, "simd_any", file, line); }
inline bool simd_is_first(ELV_HERE) {
  ulong active = elv::cast_vote<elv::vote::active>(true, "simd_is_first", file, line);
  return (active & ((1ul << elv_lane()) - 1)) == 0;
}
inline bool simd_is_helper_thread() { return false; }
} // namespace metal
