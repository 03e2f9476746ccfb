// <metal_simdgroup>, <metal_quadgroup>: of numbers of at most 32 bits and their vectors; not of bool, bfloat, and integers of 64 bits.
#pragma once

namespace elv {
template <class T> using exchanged = metal::enable_if_t<metal::__is_valid_simdgroup_type<element_t<T>>::value, T>;
} // namespace elv

namespace metal {
#define ELV_BOTH(M, name) M(simd_##name) M(quad_##name)
#define ELV_REDUCE(name) template <class T> elv::exchanged<T> name(T);
#define ELV_MOVE(name) template <class T> elv::exchanged<T> name(T, ushort);
#define ELV_FILL(name)                                             \
  template <class T> elv::exchanged<T> name(T, T, ushort);         \
  template <class T> elv::exchanged<T> name(T, T, ushort, ushort);
#define ELV_VOTE(name) bool name(bool);
ELV_BOTH(ELV_REDUCE, sum)
ELV_BOTH(ELV_REDUCE, product)
ELV_BOTH(ELV_REDUCE, min)
ELV_BOTH(ELV_REDUCE, max)
ELV_BOTH(ELV_REDUCE, and)
ELV_BOTH(ELV_REDUCE, or)
ELV_BOTH(ELV_REDUCE, xor)
ELV_BOTH(ELV_REDUCE, prefix_inclusive_sum)
ELV_BOTH(ELV_REDUCE, prefix_exclusive_sum)
ELV_BOTH(ELV_REDUCE, prefix_inclusive_product)
ELV_BOTH(ELV_REDUCE, prefix_exclusive_product)
ELV_BOTH(ELV_REDUCE, broadcast_first)
ELV_BOTH(ELV_MOVE, broadcast)
ELV_BOTH(ELV_MOVE, shuffle)
ELV_BOTH(ELV_MOVE, shuffle_xor)
ELV_BOTH(ELV_MOVE, shuffle_up)
ELV_BOTH(ELV_MOVE, shuffle_down)
ELV_BOTH(ELV_MOVE, shuffle_rotate_up)
ELV_BOTH(ELV_MOVE, shuffle_rotate_down)
ELV_BOTH(ELV_FILL, shuffle_and_fill_up)
ELV_BOTH(ELV_FILL, shuffle_and_fill_down)
ELV_BOTH(ELV_VOTE, all)
ELV_BOTH(ELV_VOTE, any)

struct simd_vote {
  typedef ulong vote_t;
  vote_t votes;
  simd_vote() = default;
  explicit constexpr simd_vote(vote_t v) : votes(v) {}
  explicit constexpr operator vote_t() const { return votes; }
  constexpr bool all() const { return true; }
  constexpr bool any() const { return true; }
};
typedef simd_vote quad_vote;
simd_vote simd_ballot(bool);
simd_vote simd_active_threads_mask();
bool simd_is_first();
bool simd_is_helper_thread();
quad_vote quad_ballot(bool);
quad_vote quad_active_threads_mask();
bool quad_is_first();
} // namespace metal
