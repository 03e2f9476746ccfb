// What a text has without any include: keywords, scalars, vectors, `as_type`.
#pragma once
#pragma clang system_header

#define ELV_RULES
#define device __attribute__((opencl_global))
#define constant const __attribute__((opencl_constant))
#define threadgroup __attribute__((opencl_local))
#define thread
#define ray_data thread
#define object_data threadgroup
#define kernel
#define coherent(...)

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;
// A pass of its own finds implicit conversions to bfloat, which Metal has not: there it is an enumeration.
#ifdef ELV_STRICT_BFLOAT
enum bfloat : ushort {};
#else
typedef __bf16 bfloat;
#endif
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef unsigned long size_t;
typedef long ptrdiff_t;
typedef long intptr_t;
typedef unsigned long uintptr_t;
typedef decltype(nullptr) nullptr_t;
#define NULL nullptr

namespace metal {
template <class T, int N> using vec = T __attribute__((ext_vector_type(N)));
template <class T, int N> using packed_vec = T __attribute__((ext_vector_type(N)));
using ::bfloat;
using ::half;
using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::int8_t;
using ::intptr_t;
using ::ptrdiff_t;
using ::size_t;
using ::uchar;
using ::uint;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::uint8_t;
using ::uintptr_t;
using ::ulong;
using ::ushort;
} // namespace metal
using metal::packed_vec;
using metal::vec;

#define ELV_VECTOR(T, E, N)                         \
  typedef E T##N __attribute__((ext_vector_type(N))); \
  typedef T##N packed_##T##N;                       \
  typedef T##N simd_##T##N;                         \
  typedef T##N vector_##T##N;                       \
  namespace metal {                                 \
  using ::T##N;                                     \
  using ::packed_##T##N;                            \
  }                                                 \
  namespace simd {                                  \
  using ::T##N;                                     \
  using ::packed_##T##N;                            \
  }
#define ELV_VECTORS(T, E) ELV_VECTOR(T, E, 2) ELV_VECTOR(T, E, 3) ELV_VECTOR(T, E, 4)
ELV_VECTORS(bool, bool)
ELV_VECTORS(char, char)
ELV_VECTORS(uchar, uchar)
ELV_VECTORS(short, short)
ELV_VECTORS(ushort, ushort)
ELV_VECTORS(int, int)
ELV_VECTORS(uint, uint)
ELV_VECTORS(long, long)
ELV_VECTORS(ulong, ulong)
ELV_VECTORS(half, half)
ELV_VECTORS(float, float)
#ifdef ELV_STRICT_BFLOAT
// An enumeration makes no vectors.
ELV_VECTORS(bfloat, ushort)
#else
ELV_VECTORS(bfloat, bfloat)
#endif
#undef ELV_VECTORS
#undef ELV_VECTOR

#ifdef ELV_STRICT_BFLOAT
#define ELV_BFLOAT(op)                                                             \
  constexpr bfloat operator op(bfloat a, bfloat) { return a; }                     \
  template <class T> thread bfloat& operator op##=(thread bfloat& a, T);           \
  template <class T> device bfloat& operator op##=(device bfloat& a, T);           \
  template <class T> threadgroup bfloat& operator op##=(threadgroup bfloat& a, T);
ELV_BFLOAT(+)
ELV_BFLOAT(-)
ELV_BFLOAT(*)
ELV_BFLOAT(/)
#undef ELV_BFLOAT
constexpr bfloat operator-(bfloat a) { return a; }
constexpr bfloat operator+(bfloat a) { return a; }
#endif

// What headers that devices share ask of this one.
#define ELV_THREAD thread
#define ELV_IS_CONVERTIBLE __is_convertible
#define ELV_INLINE inline
#define ELV_AND_HERE
#define ELV_PASS_HERE

#include "traits.h"

namespace elv {
template <class T> struct width { static constexpr int value = 1; };
template <class T, int N> struct width<metal::vec<T, N>> { static constexpr int value = N; };
template <class... A> struct widths { static constexpr int value = 0; };
template <class A, class... B> struct widths<A, B...> { static constexpr int value = width<value_t<A>>::value + widths<B...>::value; };
template <class T> struct element { typedef T type; };
template <class T, int N> struct element<metal::vec<T, N>> { typedef T type; };
template <class T> using element_t = typename element<value_t<T>>::type;
template <class U, class T> constexpr bool is_scalar_for = __is_convertible(U, T) && width<U>::value == 1;
constexpr uint simd_width = 32;
} // namespace elv

namespace metal {
template <class T> struct is_vector : bool_constant<(elv::width<elv::value_t<T>>::value > 1)> {};
template <class T> constexpr bool is_vector_v = is_vector<T>::value;
template <class T> struct vec_elements : integral_constant<int, elv::width<elv::value_t<T>>::value> {};
template <class T> constexpr int vec_elements_v = vec_elements<T>::value;
template <class T, int N> struct make_vector { typedef vec<T, N> type; };
template <class T, int N> using make_vector_t = vec<T, N>;
} // namespace metal

// A vector of scalars and shorter vectors, or of one scalar.
template <class V, class... A> constexpr V elv_make(A&&...) {
  static_assert(elv::widths<A...>::value == elv::width<V>::value || elv::widths<A...>::value == 1, "a vector takes as many numbers as it has, or one");
  return V();
}
#include "matrix.h"

#define ELV_MATRIX(T, C, R)                  \
  typedef metal::matrix<T, C, R> T##C##x##R; \
  typedef T##C##x##R simd_##T##C##x##R;      \
  typedef T##C##x##R matrix_##T##C##x##R;    \
  namespace metal {                          \
  using ::T##C##x##R;                        \
  }                                          \
  namespace simd {                           \
  using ::T##C##x##R;                        \
  }
#define ELV_MATRICES_OF(T, C) ELV_MATRIX(T, C, 2) ELV_MATRIX(T, C, 3) ELV_MATRIX(T, C, 4)
#define ELV_MATRICES(T) ELV_MATRICES_OF(T, 2) ELV_MATRICES_OF(T, 3) ELV_MATRICES_OF(T, 4)
ELV_MATRICES(float)
ELV_MATRICES(half)
ELV_MATRICES(bfloat)
#undef ELV_MATRICES
#undef ELV_MATRICES_OF
#undef ELV_MATRIX
using metal::matrix;

// What a function constant is not known to be.
template <class T> constexpr bool is_function_constant_defined(const T&) { return true; }
template <class T> constexpr bool is_function_constant_defined(constant T&) { return true; }
namespace metal {
using ::elv_make;
using ::is_function_constant_defined;
} // namespace metal
namespace simd {
using ::elv_make;
}

template <class T, class U> inline T as_type(U bits) {
  static_assert(sizeof(T) == sizeof(U), "as_type needs types of one size");
  return __builtin_bit_cast(T, bits);
}
