// How lanes exchange values: each parks with a slot, and the last one to arrive lets a function run over all slots.
#pragma once

namespace elv {
constexpr uint simd_width = 32;

template <class T, class R = T> struct slot {
  T value;
  R result;
  uint argument;
};

// Whether the lane takes part.
ELV_PLAIN inline bool is_active(uint active, uint lane) { return lane < simd_width && (active >> lane & 1) != 0; }

// A value that lanes have made together, if any of them takes part.
template <class T> struct gathered {
  T value;
  bool present;
};
template <class F, class T> ELV_PLAIN gathered<T> gather(gathered<T> a, gathered<T> b) {
  if (!a.present) return b;
  if (b.present) a.value = F::template fold<T>(a.value, b.value);
  return a;
}

// A fold over groups of `Width` lanes by an xor tree, as on CUDA; lanes that take no part are left out. F: static T fold(T, T).
template <class F, class T, uint Width> ELV_PLAIN void fold_groups(void** slots, uint active) {
  gathered<T> lanes[simd_width];
  for (uint i = 0; i < simd_width; i++) {
    lanes[i].present = is_active(active, i);
    if (lanes[i].present) lanes[i].value = ((slot<T>*)slots[i])->value;
  }
  for (uint mask = Width / 2; mask > 0; mask /= 2)
    for (uint i = 0; i < simd_width; i++)
      // The lower lanes of each group end with the whole.
      if ((i & (Width - 1)) < mask) lanes[i] = gather<F, T>(lanes[i], lanes[i + mask]);
  for (uint i = 0; i < simd_width; i++)
    if (is_active(active, i)) ((slot<T>*)slots[i])->result = lanes[i & ~(Width - 1)].value;
}

// The value of the lowest lane of each group that takes part.
template <class T, uint Width> ELV_PLAIN void first_of_groups(void** slots, uint active) {
  for (uint i = 0; i < simd_width; i++) {
    if (!is_active(active, i)) continue;
    uint from = i & ~(Width - 1);
    while (!is_active(active, from)) from++;
    ((slot<T>*)slots[i])->result = ((slot<T>*)slots[from])->value;
  }
}

// A running fold from the lowest lane of each group up, in steps of doubled distance, as on CUDA; exclusive ones leave out the lane's own value.
// F: static T fold(T, T), T first().
template <class F, class T, uint Width, bool Inclusive> ELV_PLAIN void scan_groups(void** slots, uint active) {
  gathered<T> lanes[simd_width];
  for (uint i = 0; i < simd_width; i++) {
    lanes[i].present = is_active(active, i);
    if (lanes[i].present) lanes[i].value = ((slot<T>*)slots[i])->value;
  }
  for (uint delta = 1; delta < Width; delta *= 2)
    for (uint i = simd_width; i-- > 0;)
      if ((i & (Width - 1)) >= delta) lanes[i] = gather<F, T>(lanes[i - delta], lanes[i]);
  for (uint i = 0; i < simd_width; i++) {
    if (!is_active(active, i)) continue;
    slot<T>* own = (slot<T>*)slots[i];
    if (Inclusive)
      own->result = lanes[i].value;
    else
      own->result = (i & (Width - 1)) != 0 && lanes[i - 1].present ? lanes[i - 1].value : F::template first<T>();
  }
}

// Each lane takes the value of another, or keeps its own where there is none. F: static uint source(uint lane, uint argument).
template <class F, class T> ELV_PLAIN void permute(void** slots, uint active) {
  for (uint i = 0; i < simd_width; i++) {
    if (!is_active(active, i)) continue;
    slot<T>* own = (slot<T>*)slots[i];
    uint from = F::source(i, own->argument);
    own->result = is_active(active, from) ? ((slot<T>*)slots[from])->value : own->value;
  }
}

template <class T> ELV_PLAIN inline T exchange(elv_combine combine, T value, uint argument, elv_text operation, elv_text file, int line) {
  slot<T> own;
  own.value = value;
  own.argument = argument;
  elv_collective(combine, &own, operation, file, line);
  return own.result;
}

// Floating-point numbers as integers of their size, for bitwise folds.
template <class T> ELV_PLAIN inline auto bits(T a) {
  if constexpr (!metal::is_floating_point_v<T>)
    return a;
  else if constexpr (sizeof(T) == 4)
    return __builtin_bit_cast(uint, a);
  else
    return __builtin_bit_cast(ushort, a);
}
template <class T, class B> ELV_PLAIN inline T on_bits(B b) {
  if constexpr (!metal::is_floating_point_v<T>)
    return (T)b;
  else if constexpr (sizeof(T) == 4)
    return __builtin_bit_cast(T, (uint)b);
  else
    return __builtin_bit_cast(T, (ushort)b);
}

struct sum {
  template <class T> ELV_PLAIN static T fold(T a, T b) { return a + b; }
  template <class T> ELV_PLAIN static T first() { return (T)0; }
};
struct product {
  template <class T> ELV_PLAIN static T fold(T a, T b) { return a * b; }
  template <class T> ELV_PLAIN static T first() { return (T)1; }
};
struct minimum { template <class T> ELV_PLAIN static T fold(T a, T b) { return (T)metal::min(a, b); } };
struct maximum { template <class T> ELV_PLAIN static T fold(T a, T b) { return (T)metal::max(a, b); } };
struct bit_and { template <class T> ELV_PLAIN static T fold(T a, T b) { return on_bits<T>(bits(a) & bits(b)); } };
struct bit_or { template <class T> ELV_PLAIN static T fold(T a, T b) { return on_bits<T>(bits(a) | bits(b)); } };
struct bit_xor { template <class T> ELV_PLAIN static T fold(T a, T b) { return on_bits<T>(bits(a) ^ bits(b)); } };
} // namespace elv

#define ELV_FOLD(name, width, F)                                                                              \
  template <class T> ELV_PLAIN inline T name(T value, ELV_HERE) {                                             \
    return elv::exchange(&elv::fold_groups<elv::F, T, width>, value, 0, #name, file, line);                   \
  }
#define ELV_FIRST(name, width)                                                                                \
  template <class T> ELV_PLAIN inline T name(T value, ELV_HERE) {                                             \
    return elv::exchange(&elv::first_of_groups<T, width>, value, 0, #name, file, line);                       \
  }
#define ELV_SCAN(name, width, F, inclusive)                                                                   \
  template <class T> ELV_PLAIN inline T name(T value, ELV_HERE) {                                             \
    return elv::exchange(&elv::scan_groups<elv::F, T, width, inclusive>, value, 0, #name, file, line);        \
  }
#define ELV_PERMUTE(name, from)                                                                               \
  struct elv_##name {                                                                                         \
    ELV_PLAIN static uint source(uint lane, uint argument) { return (from); }                                 \
  };                                                                                                          \
  template <class T> ELV_PLAIN inline T name(T value, ushort argument, ELV_HERE) {                            \
    return elv::exchange(&elv::permute<elv_##name, T>, value, argument, #name, file, line);                   \
  }
