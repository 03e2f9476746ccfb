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

// A fold over groups of `Width` lanes, in lane order. F: static T fold(T, T).
template <class F, class T, uint Width> ELV_PLAIN void fold_groups(void** slots, uint active) {
  for (uint base = 0; base < simd_width; base += Width) {
    bool first = true;
    T total;
    for (uint i = base; i < base + Width; i++) {
      if (!is_active(active, i)) continue;
      T value = ((slot<T>*)slots[i])->value;
      if (first)
        total = value;
      else
        total = F::template fold<T>(total, value);
      first = false;
    }
    for (uint i = base; i < base + Width; i++)
      if (is_active(active, i)) ((slot<T>*)slots[i])->result = total;
  }
}

// A running fold from the lowest lane of each group up; exclusive ones leave out the lane's own value. F: static T fold(T, T), T first().
template <class F, class T, uint Width, bool Inclusive> ELV_PLAIN void scan_groups(void** slots, uint active) {
  for (uint base = 0; base < simd_width; base += Width) {
    T total = F::template first<T>();
    for (uint i = base; i < base + Width; i++) {
      if (!is_active(active, i)) continue;
      slot<T>* own = (slot<T>*)slots[i];
      T next = F::template fold<T>(total, own->value);
      own->result = Inclusive ? next : total;
      total = next;
    }
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
struct keep_first { template <class T> ELV_PLAIN static T fold(T a, T) { return a; } };
} // namespace elv

#define ELV_FOLD(name, width, F)                                                                              \
  template <class T> ELV_PLAIN inline T name(T value, ELV_HERE) {                                             \
    return elv::exchange(&elv::fold_groups<elv::F, T, width>, value, 0, #name, file, line);                   \
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
