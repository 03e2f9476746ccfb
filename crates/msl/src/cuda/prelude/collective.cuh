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

// Lanes of this warp that exist: fewer than 32 in the last one of a threadgroup whose size is no multiple. Whether another lane is missing.
#ifdef ELV_NONUNIFORM
__forceinline__ uint lanes() { return ::__popc(::__ballot_sync(all_lanes, true)); }
__forceinline__ bool is_missing(uint other) { return other >= lanes(); }
#else
__forceinline__ uint lanes() {
  uint threads = blockDim.x * blockDim.y * blockDim.z;
  uint first = (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) & ~31u;
  return threads - first < 32 ? threads - first : 32;
}
__forceinline__ bool is_missing(uint) { return false; }
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
template <class T> __forceinline__ T shuffle(T value, uint from) {
  return by_words(value, [=](uint w) { return ::__shfl_sync(all_lanes, w, from); });
}
template <class T> __forceinline__ T shuffle_xor(T value, uint mask) {
  return by_words(value, [=](uint w) { return ::__shfl_xor_sync(all_lanes, w, mask); });
}
template <class T> __forceinline__ T shuffle_up(T value, uint delta, uint width) {
  return by_words(value, [=](uint w) { return ::__shfl_up_sync(all_lanes, w, delta, width); });
}
template <class T> __forceinline__ T shuffle_down(T value, uint delta, uint width) {
  return by_words(value, [=](uint w) { return ::__shfl_down_sync(all_lanes, w, delta, width); });
}

// The same where the other lane may be missing, in which case a lane keeps its own value.
template <class T> __forceinline__ T take(T value, uint from) {
  T other = shuffle(value, from);
  return is_missing(from) ? value : other;
}
template <class T> __forceinline__ T take_xor(T value, uint mask) {
  T other = shuffle_xor(value, mask);
  return is_missing(lane() ^ mask) ? value : other;
}
template <class T> __forceinline__ T take_down(T value, uint delta, uint width) {
  T other = shuffle_down(value, delta, width);
  return is_missing(lane() + delta) ? value : other;
}

// A fold over groups of `Width` lanes by an xor tree. Lanes that do not exist are left out: then the lowest lane has the whole.
template <class F, uint Width, class T> __forceinline__ T fold_group(T value) {
  uint count = lanes();
  if (count == simd_width) {
#pragma unroll
    for (uint mask = Width / 2; mask > 0; mask /= 2) value = F::template fold<T>(value, shuffle_xor(value, mask));
    return value;
  }
  for (uint mask = Width / 2; mask > 0; mask /= 2) {
    T other = shuffle_xor(value, mask);
    if ((lane() ^ mask) < count) value = F::template fold<T>(value, other);
  }
  return shuffle(value, lane() & ~(Width - 1));
}

// A running fold from the lowest lane of each group up; exclusive ones leave out the lane's own value.
template <class F, uint Width, bool Inclusive, class T> __forceinline__ T scan_group(T value) {
  uint at = lane() & (Width - 1);
#pragma unroll
  for (uint delta = 1; delta < Width; delta *= 2) {
    T other = shuffle_up(value, delta, Width);
    if (at >= delta) value = F::template fold<T>(other, value);
  }
  if constexpr (Inclusive) return value;
  T before = shuffle_up(value, 1, Width);
  return at == 0 ? F::template first<T>() : before;
}

// Shifts within groups of `modulo` lanes; what would come from outside the group comes from the filling values instead.
template <bool Up, class T> __forceinline__ T shift_and_fill(T value, T fill, uint delta, uint modulo) {
  uint at = lane() % modulo, base = lane() - at;
  bool inside = Up ? at >= delta : at + delta < modulo;
  uint from = base + (Up ? at + modulo - delta : at + delta) % modulo;
  T other = take(value, from), filling = take(fill, from);
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

#define ELV_FOLD(name, width, F) \
  template <class T> __forceinline__ T name(T value) { return elv::fold_group<elv::F, width>(value); }
#define ELV_SCAN(name, width, F, inclusive) \
  template <class T> __forceinline__ T name(T value) { return elv::scan_group<elv::F, width, inclusive>(value); }
