// <metal_atomic>
#pragma once

namespace metal {
template <class T> struct _atomic { T elv_value; };
template <class T> using atomic = _atomic<T>;
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<long> atomic_long;
typedef atomic<ulong> atomic_ulong;
typedef atomic<float> atomic_float;
typedef atomic<bool> atomic_bool;

#define ELV_ATOMIC(space)                                                                                            \
  template <class T> T atomic_load_explicit(const volatile space _atomic<T>*, memory_order);                         \
  template <class T, class U> void atomic_store_explicit(volatile space _atomic<T>*, U, memory_order);               \
  template <class T, class U> T atomic_exchange_explicit(volatile space _atomic<T>*, U, memory_order);               \
  template <class T, class U>                                                                                        \
  bool atomic_compare_exchange_weak_explicit(volatile space _atomic<T>*, thread T*, U, memory_order, memory_order);  \
  ELV_ATOMIC_FETCH(space, add) ELV_ATOMIC_FETCH(space, sub) ELV_ATOMIC_FETCH(space, min) ELV_ATOMIC_FETCH(space, max) \
  ELV_ATOMIC_FETCH(space, and) ELV_ATOMIC_FETCH(space, or) ELV_ATOMIC_FETCH(space, xor)                              \
  template <class U> void atomic_min_explicit(volatile space _atomic<ulong>*, U, memory_order);                      \
  template <class U> void atomic_max_explicit(volatile space _atomic<ulong>*, U, memory_order);
#define ELV_ATOMIC_FETCH(space, name) template <class T, class U> T atomic_fetch_##name##_explicit(volatile space _atomic<T>*, U, memory_order);
ELV_ATOMIC(device)
ELV_ATOMIC(threadgroup)
} // namespace metal
