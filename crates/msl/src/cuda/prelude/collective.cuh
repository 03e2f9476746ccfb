// How lanes exchange values: shuffles of the whole warp, 32 bits at once.
#pragma once

namespace elv {
constexpr uint simd_width = 32;
constexpr uint all_lanes = 0xffffffffu;

__forceinline__ uint lane() {
  uint l;
  asm("mov.u32 %0, %%laneid;" : "=r"(l));
  return l;
}

// Lanes of this warp that exist: fewer than 32 in the last one of a threadgroup whose size is no multiple.
#ifdef ELV_NONUNIFORM
__forceinline__ uint existing_lanes() { return ::__ballot_sync(all_lanes, true); }
#else
__forceinline__ uint existing_lanes() {
  uint threads = blockDim.x * blockDim.y * blockDim.z;
  uint first = (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) & ~31u;
  return threads - first < 32 ? (1u << (threads - first)) - 1 : all_lanes;
}
#endif

// Operations take the lanes that come to them: all, or those that the caller knows of. These are the ones that take part, and whether another one is
// missing.
__forceinline__ uint present_lanes(uint among) { return among == all_lanes ? existing_lanes() : among; }
#ifdef ELV_NONUNIFORM
__forceinline__ bool is_missing(uint other, uint among) {
  // Which lanes are there is found by all of them together.
  uint present = present_lanes(among);
  return other >= simd_width || (present >> other & 1) == 0;
}
#else
__forceinline__ bool is_missing(uint other, uint among) { return (among >> (other & 31) & 1) == 0; }
#endif

// A value of any type, moved by a function of 32-bit words.
template <class T, class F> __forceinline__ T by_words(T value, F move) {
  if constexpr (sizeof(T) == 1)
    return __builtin_bit_cast(T, (uchar)move((uint)__builtin_bit_cast(uchar, value)));
  else if constexpr (sizeof(T) == 2)
    return __builtin_bit_cast(T, (ushort)move((uint)__builtin_bit_cast(ushort, value)));
  else {
    struct words { uint at[sizeof(T) / 4]; } w = __builtin_bit_cast(words, value);
#pragma unroll
    for (uint i = 0; i < sizeof(T) / 4; i++) w.at[i] = move(w.at[i]);
    return __builtin_bit_cast(T, w);
  }
}
template <class T> __forceinline__ T shuffle(T value, uint from, uint among) {
  return by_words(value, [=](uint w) { return ::__shfl_sync(among, w, from); });
}
template <class T> __forceinline__ T shuffle_xor(T value, uint mask, uint among) {
  return by_words(value, [=](uint w) { return ::__shfl_xor_sync(among, w, mask); });
}
template <class T> __forceinline__ T shuffle_up(T value, uint delta, uint width, uint among) {
  return by_words(value, [=](uint w) { return ::__shfl_up_sync(among, w, delta, width); });
}
template <class T> __forceinline__ T shuffle_down(T value, uint delta, uint width, uint among) {
  return by_words(value, [=](uint w) { return ::__shfl_down_sync(among, w, delta, width); });
}

// The same where the other lane may be missing, in which case a lane keeps its own value.
template <class T> __forceinline__ T take(T value, uint from, uint among) {
  T other = shuffle(value, from, among);
  return is_missing(from, among) ? value : other;
}
template <class T> __forceinline__ T take_xor(T value, uint mask, uint among) {
  T other = shuffle_xor(value, mask, among);
  return is_missing(lane() ^ mask, among) ? value : other;
}
template <class T> __forceinline__ T take_up(T value, uint delta, uint width, uint among) {
  T other = shuffle_up(value, delta, width, among);
  return is_missing(lane() - delta, among) ? value : other;
}
template <class T> __forceinline__ T take_down(T value, uint delta, uint width, uint among) {
  T other = shuffle_down(value, delta, width, among);
  return is_missing(lane() + delta, among) ? value : other;
}
// The value of the lowest lane of each group that takes part.
template <uint Width, class T> __forceinline__ T take_first(T value, uint among) {
  uint base = lane() & ~(Width - 1);
  return shuffle(value, among == all_lanes ? base : base + ::__ffs(among >> base) - 1, among);
}

// Every `step`th lane of a group.
constexpr uint every(uint step, uint width) { return (uint)((1ull << width) - 1) / (uint)((1ull << step) - 1); }

// A fold over groups of `Width` lanes by an xor tree. Lanes that take no part are left out.
template <class F, uint Width, class T> __forceinline__ T fold_group(T value, uint among) {
  uint present = present_lanes(among);
  if (present == all_lanes) {
#pragma unroll
    for (uint mask = Width / 2; mask > 0; mask /= 2) value = F::template fold<T>(value, shuffle_xor(value, mask, among));
    return value;
  }
#pragma unroll
  for (uint mask = Width / 2; mask > 0; mask /= 2) {
    // The lanes that have the other half: any of them will do.
    uint base = lane() & ~(Width - 1), first = (lane() ^ mask) & (2 * mask - 1);
    uint others = present & every(2 * mask, Width) << (base + first);
    T other = shuffle(value, others == 0 ? lane() : ::__ffs(others) - 1, among);
    if (others != 0) value = F::template fold<T>(value, other);
  }
  return value;
}

// A running fold from the lowest lane of each group up; exclusive ones leave out the lane's own value.
template <class F, uint Width, bool Inclusive, class T> __forceinline__ T scan_group(T value, uint among) {
  uint at = lane() & (Width - 1);
  // The lowest lanes of all.
  if ((among & (among + 1)) == 0) {
#pragma unroll
    for (uint delta = 1; delta < Width; delta *= 2) {
      T other = shuffle_up(value, delta, Width, among);
      if (at >= delta) value = F::template fold<T>(other, value);
    }
    if constexpr (Inclusive) return value;
    T before = shuffle_up(value, 1, Width, among);
    return at == 0 ? F::template first<T>() : before;
  }
  // Sums of lanes between which some take no part are of no lane: each lane makes them all.
  T sums[simd_width];
  uint held = among;
#pragma unroll 1
  for (uint i = 0; i < simd_width; i++) sums[i] = shuffle(value, i, among);
#pragma unroll 1
  for (uint delta = 1; delta < Width; delta *= 2)
#pragma unroll 1
    for (uint i = simd_width; i-- > 0;) {
      if ((i & (Width - 1)) < delta || (held >> (i - delta) & 1) == 0) continue;
      sums[i] = (held >> i & 1) != 0 ? F::template fold<T>(sums[i - delta], sums[i]) : sums[i - delta];
      held |= 1u << i;
    }
  if constexpr (Inclusive) return sums[lane()];
  return at != 0 && (held >> (lane() - 1) & 1) != 0 ? sums[lane() - 1] : F::template first<T>();
}

// Shifts within groups of `modulo` lanes; what would come from outside the group comes from the filling values instead.
template <bool Up, class T> __forceinline__ T shift_and_fill(T value, T fill, uint delta, uint modulo, uint among) {
  uint at = lane() % modulo, base = lane() - at;
  bool inside = Up ? at >= delta : at + delta < modulo;
  uint from = base + (Up ? at + modulo - delta : at + delta) % modulo;
  T other = take(value, from, among), filling = take(fill, from, among);
  return inside ? other : filling;
}

// Floating-point numbers as integers of their size, for bitwise folds.
template <class T> __forceinline__ auto bits(T a) {
  if constexpr (!metal::is_floating_point_v<T>)
    return a;
  else if constexpr (sizeof(T) == 4)
    return __builtin_bit_cast(uint, a);
  else
    return __builtin_bit_cast(ushort, a);
}
template <class T, class B> __forceinline__ T on_bits(B b) {
  if constexpr (!metal::is_floating_point_v<T>)
    return (T)b;
  else if constexpr (sizeof(T) == 4)
    return __builtin_bit_cast(T, (uint)b);
  else
    return __builtin_bit_cast(T, (ushort)b);
}

struct sum {
  template <class T> static __forceinline__ T fold(T a, T b) { return a + b; }
  template <class T> static __forceinline__ T first() { return (T)0; }
};
struct product {
  template <class T> static __forceinline__ T fold(T a, T b) { return a * b; }
  template <class T> static __forceinline__ T first() { return (T)1; }
};
struct minimum { template <class T> static __forceinline__ T fold(T a, T b) { return (T)metal::min(a, b); } };
struct maximum { template <class T> static __forceinline__ T fold(T a, T b) { return (T)metal::max(a, b); } };
struct bit_and { template <class T> static __forceinline__ T fold(T a, T b) { return on_bits<T>(bits(a) & bits(b)); } };
struct bit_or { template <class T> static __forceinline__ T fold(T a, T b) { return on_bits<T>(bits(a) | bits(b)); } };
struct bit_xor { template <class T> static __forceinline__ T fold(T a, T b) { return on_bits<T>(bits(a) ^ bits(b)); } };
} // namespace elv

// The lanes that come to an operation, last among its arguments.
#define ELV_AMONG uint among = elv::all_lanes
#define ELV_FOLD(name, width, F) \
  template <class T> __forceinline__ T name(T value, ELV_AMONG) { return elv::fold_group<elv::F, width>(value, among); }
#define ELV_SCAN(name, width, F, inclusive) \
  template <class T> __forceinline__ T name(T value, ELV_AMONG) { return elv::scan_group<elv::F, width, inclusive>(value, among); }
