// The short names of vectors and matrices, and those of <simd/simd.h>, which headers shared with the host use.
#pragma once

#define ELV_VECTORS(T)                             \
  typedef metal::vec<T, 2> T##2;                   \
  typedef metal::packed_vec<T, 2> packed_##T##2;   \
  typedef T##2 simd_##T##2;                        \
  typedef T##2 vector_##T##2;                      \
  typedef metal::vec<T, 3> T##3;                   \
  typedef metal::packed_vec<T, 3> packed_##T##3;   \
  typedef T##3 simd_##T##3;                        \
  typedef T##3 vector_##T##3;                      \
  typedef metal::vec<T, 4> T##4;                   \
  typedef metal::packed_vec<T, 4> packed_##T##4;   \
  typedef T##4 simd_##T##4;                        \
  typedef T##4 vector_##T##4;                      \
  namespace metal {                                \
  using ELV_ROOT::T##2;                                    \
  using ELV_ROOT::packed_##T##2;                           \
  using ELV_ROOT::T##3;                                    \
  using ELV_ROOT::packed_##T##3;                           \
  using ELV_ROOT::T##4;                                    \
  using ELV_ROOT::packed_##T##4;                           \
  }                                                \
  namespace simd {                                 \
  using ELV_ROOT::T##2;                                    \
  using ELV_ROOT::packed_##T##2;                           \
  using ELV_ROOT::T##3;                                    \
  using ELV_ROOT::packed_##T##3;                           \
  using ELV_ROOT::T##4;                                    \
  using ELV_ROOT::packed_##T##4;                           \
  }
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

#define ELV_MATRICES(T)                            \
  typedef metal::matrix<T, 2, 2> T##2x2;           \
  typedef T##2x2 simd_##T##2x2;                    \
  typedef T##2x2 matrix_##T##2x2;                  \
  typedef metal::matrix<T, 2, 3> T##2x3;           \
  typedef T##2x3 simd_##T##2x3;                    \
  typedef T##2x3 matrix_##T##2x3;                  \
  typedef metal::matrix<T, 2, 4> T##2x4;           \
  typedef T##2x4 simd_##T##2x4;                    \
  typedef T##2x4 matrix_##T##2x4;                  \
  typedef metal::matrix<T, 3, 2> T##3x2;           \
  typedef T##3x2 simd_##T##3x2;                    \
  typedef T##3x2 matrix_##T##3x2;                  \
  typedef metal::matrix<T, 3, 3> T##3x3;           \
  typedef T##3x3 simd_##T##3x3;                    \
  typedef T##3x3 matrix_##T##3x3;                  \
  typedef metal::matrix<T, 3, 4> T##3x4;           \
  typedef T##3x4 simd_##T##3x4;                    \
  typedef T##3x4 matrix_##T##3x4;                  \
  typedef metal::matrix<T, 4, 2> T##4x2;           \
  typedef T##4x2 simd_##T##4x2;                    \
  typedef T##4x2 matrix_##T##4x2;                  \
  typedef metal::matrix<T, 4, 3> T##4x3;           \
  typedef T##4x3 simd_##T##4x3;                    \
  typedef T##4x3 matrix_##T##4x3;                  \
  typedef metal::matrix<T, 4, 4> T##4x4;           \
  typedef T##4x4 simd_##T##4x4;                    \
  typedef T##4x4 matrix_##T##4x4;                  \
  namespace metal {                                \
  using ELV_ROOT::T##2x2;                                  \
  using ELV_ROOT::T##2x3;                                  \
  using ELV_ROOT::T##2x4;                                  \
  using ELV_ROOT::T##3x2;                                  \
  using ELV_ROOT::T##3x3;                                  \
  using ELV_ROOT::T##3x4;                                  \
  using ELV_ROOT::T##4x2;                                  \
  using ELV_ROOT::T##4x3;                                  \
  using ELV_ROOT::T##4x4;                                  \
  }                                                \
  namespace simd {                                 \
  using ELV_ROOT::T##2x2;                                  \
  using ELV_ROOT::T##2x3;                                  \
  using ELV_ROOT::T##2x4;                                  \
  using ELV_ROOT::T##3x2;                                  \
  using ELV_ROOT::T##3x3;                                  \
  using ELV_ROOT::T##3x4;                                  \
  using ELV_ROOT::T##4x2;                                  \
  using ELV_ROOT::T##4x3;                                  \
  using ELV_ROOT::T##4x4;                                  \
  }
ELV_MATRICES(float)
ELV_MATRICES(half)
ELV_MATRICES(bfloat)
#undef ELV_MATRICES

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
