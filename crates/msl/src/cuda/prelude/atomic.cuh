// <metal_atomic>. Orders stronger than relaxed are Metal's fences around relaxed operations, so every operation is relaxed.
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
template <class A> using atomic_t = typename atomic_element<value_t<A>>::type;

// The unsigned type CUDA's atomics know, by size; a bool's whole word is exchanged.
template <uint Size> struct atomic_word { typedef uint type; };
template <> struct atomic_word<8> { typedef unsigned long long type; };
template <class T> using atomic_word_t = typename atomic_word<sizeof(T)>::type;
template <class T> __forceinline__ atomic_word_t<T> to_word(T value) {
  if constexpr (sizeof(T) >= 4)
    return __builtin_bit_cast(atomic_word_t<T>, value);
  else
    return (uint)value;
}
template <class T> __forceinline__ T from_word(atomic_word_t<T> word) {
  if constexpr (sizeof(T) >= 4)
    return __builtin_bit_cast(T, word);
  else
    return (T)word;
}

struct atomic_add { template <class T> static __forceinline__ T apply(T a, T b) { return a + b; } };
struct atomic_sub { template <class T> static __forceinline__ T apply(T a, T b) { return a - b; } };
struct atomic_min { template <class T> static __forceinline__ T apply(T a, T b) { return (T)metal::min(a, b); } };
struct atomic_max { template <class T> static __forceinline__ T apply(T a, T b) { return (T)metal::max(a, b); } };

// For the types without an instruction: replaces the value until no one else came between.
template <class F, class T> __forceinline__ T atomic_update(T* address, T operand) {
  static_assert(sizeof(T) >= 4, "atomic arithmetic needs 32 or 64 bits");
  atomic_word_t<T> seen = *(volatile atomic_word_t<T>*)address, expected;
  do {
    expected = seen;
    seen = ::atomicCAS((atomic_word_t<T>*)address, expected, to_word(F::template apply<T>(from_word<T>(expected), operand)));
  } while (seen != expected);
  return from_word<T>(seen);
}
// The type for which CUDA has the operation on 64-bit integers.
template <class T> struct cuda_integer { typedef T type; };
template <> struct cuda_integer<long> { typedef long long type; };
template <> struct cuda_integer<ulong> { typedef unsigned long long type; };
template <class T> using cuda_integer_t = typename cuda_integer<T>::type;
} // namespace elv

namespace metal {
template <class A> __forceinline__ elv::atomic_t<A> atomic_load_explicit(A* object, memory_order) { return *(volatile elv::atomic_t<A>*)object; }
template <class A> __forceinline__ void atomic_store_explicit(A* object, elv::atomic_t<A> value, memory_order) { *(volatile elv::atomic_t<A>*)object = value; }
template <class A> __forceinline__ elv::atomic_t<A> atomic_exchange_explicit(A* object, elv::atomic_t<A> value, memory_order) {
  typedef elv::atomic_t<A> T;
  static_assert(sizeof(T) >= 4, "atomic_exchange_explicit needs 32 or 64 bits");
  return elv::from_word<T>(::atomicExch((elv::atomic_word_t<T>*)object, elv::to_word(value)));
}
template <class A, class E>
__forceinline__ bool atomic_compare_exchange_weak_explicit(A* object, E* expected, elv::atomic_t<A> desired, memory_order, memory_order) {
  typedef elv::atomic_t<A> T;
  static_assert(sizeof(T) >= 4, "atomic_compare_exchange_weak_explicit needs 32 or 64 bits");
  elv::atomic_word_t<T> wanted = elv::to_word((T)*expected), seen = ::atomicCAS((elv::atomic_word_t<T>*)object, wanted, elv::to_word(desired));
  *expected = elv::from_word<T>(seen);
  return seen == wanted;
}
template <class A> __forceinline__ elv::atomic_t<A> atomic_fetch_add_explicit(A* object, elv::atomic_t<A> operand, memory_order) {
  typedef elv::atomic_t<A> T;
  if constexpr (is_floating_point_v<T>)
    return ::atomicAdd((T*)object, operand);
  else
    return elv::from_word<T>(::atomicAdd((elv::atomic_word_t<T>*)object, elv::to_word(operand)));
}
template <class A> __forceinline__ elv::atomic_t<A> atomic_fetch_sub_explicit(A* object, elv::atomic_t<A> operand, memory_order order) {
  return atomic_fetch_add_explicit(object, (elv::atomic_t<A>)-operand, order);
}
#define ELV_ATOMIC(name, builtin, F)                                                                                                             \
  template <class A> __forceinline__ elv::atomic_t<A> name(A* object, elv::atomic_t<A> operand, memory_order) {                                  \
    typedef elv::atomic_t<A> T;                                                                                                                  \
    if constexpr (is_integral_v<T>)                                                                                                              \
      return (T)builtin((elv::cuda_integer_t<T>*)object, (elv::cuda_integer_t<T>)operand);                                                       \
    else                                                                                                                                         \
      return elv::atomic_update<elv::F>((T*)object, operand);                                                                                    \
  }
ELV_ATOMIC(atomic_fetch_min_explicit, ::atomicMin, atomic_min)
ELV_ATOMIC(atomic_fetch_max_explicit, ::atomicMax, atomic_max)
#undef ELV_ATOMIC
#define ELV_ATOMIC(name, builtin)                                                                                                                \
  template <class A> __forceinline__ elv::atomic_t<A> name(A* object, elv::atomic_t<A> operand, memory_order) {                                  \
    typedef elv::atomic_t<A> T;                                                                                                                  \
    return elv::from_word<T>(builtin((elv::atomic_word_t<T>*)object, elv::to_word(operand)));                                                    \
  }
ELV_ATOMIC(atomic_fetch_and_explicit, ::atomicAnd)
ELV_ATOMIC(atomic_fetch_or_explicit, ::atomicOr)
ELV_ATOMIC(atomic_fetch_xor_explicit, ::atomicXor)
#undef ELV_ATOMIC
// Without a result: only 64-bit unsigned integers have these.
template <class A> __forceinline__ void atomic_min_explicit(A* object, elv::atomic_t<A> operand, memory_order order) {
  atomic_fetch_min_explicit(object, operand, order);
}
template <class A> __forceinline__ void atomic_max_explicit(A* object, elv::atomic_t<A> operand, memory_order order) {
  atomic_fetch_max_explicit(object, operand, order);
}
} // namespace metal
