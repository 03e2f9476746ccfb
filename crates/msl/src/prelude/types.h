// The short names of vectors and matrices, and those of <simd/simd.h>, which headers shared with the host use.
#pragma once

#define ELV_VECTOR(T, N)                         \
  typedef metal::vec<T, N> T##N;                 \
  typedef metal::packed_vec<T, N> packed_##T##N; \
  typedef T##N simd_##T##N;                      \
  typedef T##N vector_##T##N;                    \
  namespace metal {                              \
  using ELV_ROOT::T##N;                          \
  using ELV_ROOT::packed_##T##N;                 \
  }                                              \
  namespace simd {                               \
  using ELV_ROOT::T##N;                          \
  using ELV_ROOT::packed_##T##N;                 \
  }
#define ELV_VECTORS(T) ELV_VECTOR(T, 2) ELV_VECTOR(T, 3) ELV_VECTOR(T, 4)
ELV_VECTORS(bool)
ELV_VECTORS(char)
ELV_VECTORS(uchar)
ELV_VECTORS(short)
ELV_VECTORS(ushort)
ELV_VECTORS(int)
ELV_VECTORS(uint)
ELV_VECTORS(long)
ELV_VECTORS(ulong)
ELV_VECTORS(half)
ELV_VECTORS(float)
ELV_VECTORS(bfloat)
#undef ELV_VECTORS
#undef ELV_VECTOR

#define ELV_MATRIX(T, C, R)                  \
  typedef metal::matrix<T, C, R> T##C##x##R; \
  typedef T##C##x##R simd_##T##C##x##R;      \
  typedef T##C##x##R matrix_##T##C##x##R;    \
  namespace metal {                          \
  using ELV_ROOT::T##C##x##R;                \
  }                                          \
  namespace simd {                           \
  using ELV_ROOT::T##C##x##R;                \
  }
#define ELV_MATRICES_OF(T, C) ELV_MATRIX(T, C, 2) ELV_MATRIX(T, C, 3) ELV_MATRIX(T, C, 4)
#define ELV_MATRICES(T) ELV_MATRICES_OF(T, 2) ELV_MATRICES_OF(T, 3) ELV_MATRICES_OF(T, 4)
ELV_MATRICES(float)
ELV_MATRICES(half)
ELV_MATRICES(bfloat)
#undef ELV_MATRICES
#undef ELV_MATRICES_OF
#undef ELV_MATRIX

namespace metal {
using ELV_ROOT::int8_t;
using ELV_ROOT::uint8_t;
using ELV_ROOT::int16_t;
using ELV_ROOT::uint16_t;
using ELV_ROOT::int32_t;
using ELV_ROOT::uint32_t;
using ELV_ROOT::int64_t;
using ELV_ROOT::uint64_t;
using ELV_ROOT::size_t;
using ELV_ROOT::ptrdiff_t;
using ELV_ROOT::intptr_t;
using ELV_ROOT::uintptr_t;
using ELV_ROOT::uchar;
using ELV_ROOT::ushort;
using ELV_ROOT::uint;
using ELV_ROOT::ulong;
using ELV_ROOT::bfloat;
} // namespace metal

// Metal declares these templates outside its namespace.
using metal::matrix;
using metal::packed_vec;
using metal::vec;

template <class T, class U> constexpr T as_type(U bits) {
  static_assert(sizeof(T) == sizeof(U), "as_type needs types of one size");
  return __builtin_bit_cast(T, bits);
}
