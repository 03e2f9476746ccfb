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
ELV_FIRST(quad_broadcast_first, 4)
ELV_SCAN(quad_prefix_inclusive_sum, 4, sum, true)
ELV_SCAN(quad_prefix_exclusive_sum, 4, sum, false)
ELV_SCAN(quad_prefix_inclusive_product, 4, product, true)
ELV_SCAN(quad_prefix_exclusive_product, 4, product, false)
ELV_PERMUTE(quad_broadcast, (lane & ~3u) | (argument & 3))
ELV_PERMUTE(quad_shuffle, (lane & ~3u) | (argument & 3))
ELV_PERMUTE(quad_shuffle_xor, (lane & ~3u) | ((lane ^ argument) & 3))
ELV_PERMUTE(quad_shuffle_up, (lane & 3) >= argument ? lane - argument : lane)
ELV_PERMUTE(quad_shuffle_down, (lane & 3) + argument < 4 ? lane + argument : lane)
ELV_PERMUTE(quad_shuffle_rotate_up, (lane & ~3u) | ((lane - argument) & 3))
ELV_PERMUTE(quad_shuffle_rotate_down, (lane & ~3u) | ((lane + argument) & 3))

template <class T> inline T quad_shuffle_and_fill_up(T value, T fill, ushort delta, ushort modulo = 4, ELV_HERE) {
  return elv::shuffle_and_fill<T, true>(value, fill, delta, modulo, "quad_shuffle_and_fill_up", file, line);
}
template <class T> inline T quad_shuffle_and_fill_down(T value, T fill, ushort delta, ushort modulo = 4, ELV_HERE) {
  return elv::shuffle_and_fill<T, false>(value, fill, delta, modulo, "quad_shuffle_and_fill_down", file, line);
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
inline quad_vote quad_ballot(bool value, ELV_HERE) {
  ulong votes = elv::cast_vote<elv::vote::ballot>(value, "quad_ballot", file, line);
  return quad_vote((uint)(votes >> (elv_lane() & ~3u)) & 15);
}
inline quad_vote quad_active_threads_mask(ELV_HERE) {
  ulong votes = elv::cast_vote<elv::vote::active>(true, "quad_active_threads_mask", file, line);
  return quad_vote((uint)(votes >> (elv_lane() & ~3u)) & 15);
}
inline bool quad_all(bool value, ELV_HERE) {
  ulong against = elv::cast_vote<elv::vote::ballot>(!value, "quad_all", file, line);
  return (against >> (elv_lane() & ~3u) & 15) == 0;
}
inline bool quad_any(bool value, ELV_HERE) {
  ulong votes = elv::cast_vote<elv::vote::ballot>(value, "quad_any", file, line);
  return (votes >> (elv_lane() & ~3u) & 15) != 0;
}
} // namespace metal
