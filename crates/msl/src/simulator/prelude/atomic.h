// <metal_atomic>. Every operation is relaxed in effect: the simulator's threads take turns.
#pragma once

namespace metal {
template <class T> struct atomic { T value; };
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<long> atomic_long;
typedef atomic<ulong> atomic_ulong;
typedef atomic<float> atomic_float;
typedef atomic<bool> atomic_bool;
} // namespace metal

namespace elv {
template <class A> struct atomic_element;
template <class T> struct atomic_element<metal::atomic<T>> { typedef T type; };
// What the pointed-to atomic holds, whatever its address space.
template <class A> using atomic_t = typename atomic_element<value_t<A>>::type;

// The object as clang's builtins want it.
template <class A> ELV_INLINE atomic_t<A>* atomic_address(A* object) { return (atomic_t<A>*)(uintptr_t)object; }

struct atomic_add { template <class T> static T apply(T a, T b) { return a + b; } };
struct atomic_sub { template <class T> static T apply(T a, T b) { return a - b; } };
struct atomic_min { template <class T> static T apply(T a, T b) { return (T)metal::min(a, b); } };
struct atomic_max { template <class T> static T apply(T a, T b) { return (T)metal::max(a, b); } };

// For the types without an instruction: replaces the value until no one else came between.
template <class F, class A> ELV_INLINE atomic_t<A> atomic_update(A* object, atomic_t<A> operand) {
  typedef atomic_t<A> T;
  T* address = atomic_address(object);
  T seen, wanted;
  __atomic_load(address, (__private T*)&seen, 0);
  do {
    wanted = F::template apply<T>(seen, operand);
  } while (!__atomic_compare_exchange(address, (__private T*)&seen, (__private T*)&wanted, false, 0, 0));
  return seen;
}
} // namespace elv

namespace metal {
template <class A> ELV_INLINE elv::atomic_t<A> atomic_load_explicit(A* object, memory_order) {
  elv::atomic_t<A> value;
  __atomic_load(elv::atomic_address(object), (__private elv::atomic_t<A>*)&value, 0);
  return value;
}
template <class A> ELV_INLINE void atomic_store_explicit(A* object, elv::atomic_t<A> value, memory_order) {
  elv::atomic_t<A> stored = value;
  __atomic_store(elv::atomic_address(object), (__private elv::atomic_t<A>*)&stored, 0);
}
template <class A> ELV_INLINE elv::atomic_t<A> atomic_exchange_explicit(A* object, elv::atomic_t<A> value, memory_order) {
  elv::atomic_t<A> stored = value, old;
  __atomic_exchange(elv::atomic_address(object), (__private elv::atomic_t<A>*)&stored, (__private elv::atomic_t<A>*)&old, 0);
  return old;
}
template <class A, class E>
ELV_INLINE bool atomic_compare_exchange_weak_explicit(A* object, E* expected, elv::atomic_t<A> desired, memory_order, memory_order) {
  elv::atomic_t<A> wanted = desired, seen = *expected;
  bool exchanged = __atomic_compare_exchange(elv::atomic_address(object), (__private elv::atomic_t<A>*)&seen,
                                             (__private elv::atomic_t<A>*)&wanted, false, 0, 0);
  *expected = seen;
  return exchanged;
}
#define ELV_ATOMIC(name, builtin, F)                                                                            \
  template <class A> ELV_INLINE elv::atomic_t<A> name(A* object, elv::atomic_t<A> operand, memory_order) {      \
    if constexpr (is_integral_v<elv::atomic_t<A>>)                                                              \
      return builtin(elv::atomic_address(object), operand, 0);                                                  \
    else                                                                                                        \
      return elv::atomic_update<elv::F>(object, operand);                                                       \
  }
ELV_ATOMIC(atomic_fetch_add_explicit, __atomic_fetch_add, atomic_add)
ELV_ATOMIC(atomic_fetch_sub_explicit, __atomic_fetch_sub, atomic_sub)
ELV_ATOMIC(atomic_fetch_min_explicit, __atomic_fetch_min, atomic_min)
ELV_ATOMIC(atomic_fetch_max_explicit, __atomic_fetch_max, atomic_max)
#undef ELV_ATOMIC
#define ELV_ATOMIC(name, builtin)                                                                               \
  template <class A> ELV_INLINE elv::atomic_t<A> name(A* object, elv::atomic_t<A> operand, memory_order) {      \
    return builtin(elv::atomic_address(object), operand, 0);                                                    \
  }
ELV_ATOMIC(atomic_fetch_and_explicit, __atomic_fetch_and)
ELV_ATOMIC(atomic_fetch_or_explicit, __atomic_fetch_or)
ELV_ATOMIC(atomic_fetch_xor_explicit, __atomic_fetch_xor)
#undef ELV_ATOMIC
// Without a result: only 64-bit unsigned integers have these.
template <class A> ELV_INLINE void atomic_min_explicit(A* object, elv::atomic_t<A> operand, memory_order order) {
  atomic_fetch_min_explicit(object, operand, order);
}
template <class A> ELV_INLINE void atomic_max_explicit(A* object, elv::atomic_t<A> operand, memory_order order) {
  atomic_fetch_max_explicit(object, operand, order);
}
} // namespace metal
