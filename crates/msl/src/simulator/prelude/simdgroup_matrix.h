// <metal_simdgroup_matrix>: 8 × 8 matrices spread over a simdgroup, two adjacent elements of a row in each lane.
#pragma once

namespace elv {
ELV_PLAIN inline uint matrix_row(uint lane) { return ((lane / 4) & 4) + (lane / 2) % 4; }
ELV_PLAIN inline uint matrix_column(uint lane) { return ((lane / 4) & 2) * 2 + (lane % 2) * 2; }
ELV_PLAIN inline void nothing(void**, uint) {}
} // namespace elv

namespace metal {
template <class T, int Columns, int Rows = Columns> struct simdgroup_matrix {
  typedef vec<T, 2> storage_type;
  storage_type elements;

  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T diagonal) {
    uint row = elv::matrix_row(elv_lane()), column = elv::matrix_column(elv_lane());
    elements = storage_type(row == column ? diagonal : (T)0, row == column + 1 ? diagonal : (T)0);
  }
  ELV_PLAIN thread storage_type& thread_elements() { return elements; }
  ELV_PLAIN thread storage_type& thread_elements() const { return const_cast<thread storage_type&>(elements); }
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
template <class T> struct is_simdgroup_matrix : false_type {};
template <class T, int C, int R> struct is_simdgroup_matrix<simdgroup_matrix<T, C, R>> : true_type {};

template <class T, int C, int R = C> inline simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, C, R> m;
  m.elements = vec<T, 2>(value);
  return m;
}
template <class T, int C, int R = C> inline simdgroup_matrix<T, C, R> make_diagonal_simdgroup_matrix(T value) {
  return simdgroup_matrix<T, C, R>(value);
}
} // namespace metal

namespace elv {
// The element (row, column) of a matrix in memory, or (column, row) of a transposed one.
ELV_INLINE ulong matrix_offset(ulong row, ulong column, ulong stride, metal::ulong2 origin, bool transpose) {
  return transpose ? (origin.y + column) * stride + origin.x + row : (origin.y + row) * stride + origin.x + column;
}
// Loading and storing waits for the whole simdgroup, like every operation on these matrices.
template <class T, class P>
inline void matrix_load(metal::simdgroup_matrix<T, 8, 8>& d, P source, ulong stride, metal::ulong2 origin, bool transpose, elv_text file, int line) {
  elv_collective(&nothing, &d, "simdgroup_load", file, line);
  ulong row = matrix_row(elv_lane()), column = matrix_column(elv_lane());
  d.elements.x = (T)source[matrix_offset(row, column, stride, origin, transpose)];
  d.elements.y = (T)source[matrix_offset(row, column + 1, stride, origin, transpose)];
}
template <class T, class P>
inline void matrix_store(metal::simdgroup_matrix<T, 8, 8> a, P target, ulong stride, metal::ulong2 origin, bool transpose, elv_text file, int line) {
  elv_collective(&nothing, nullptr, "simdgroup_store", file, line);
  ulong row = matrix_row(elv_lane()), column = matrix_column(elv_lane());
  target[matrix_offset(row, column, stride, origin, transpose)] = a.elements.x;
  target[matrix_offset(row, column + 1, stride, origin, transpose)] = a.elements.y;
}

template <class D, class A, class B, class C> struct product_slot {
  metal::vec<A, 2> a;
  metal::vec<B, 2> b;
  metal::vec<C, 2> c;
  metal::vec<D, 2> d;
};
// d = a b + c, accumulated in float in ascending order and rounded once.
template <class D, class A, class B, class C> ELV_PLAIN void matrix_product(void** slots, uint active) {
  typedef product_slot<D, A, B, C> S;
  float a[8][8] = {}, b[8][8] = {};
  for (uint i = 0; i < simd_width; i++) {
    if (!is_active(active, i)) continue;
    S* own = (S*)slots[i];
    uint row = matrix_row(i), column = matrix_column(i);
    for (uint j = 0; j < 2; j++) {
      a[row][column + j] = (float)own->a.lanes[j];
      b[row][column + j] = (float)own->b.lanes[j];
    }
  }
  for (uint i = 0; i < simd_width; i++) {
    if (!is_active(active, i)) continue;
    S* own = (S*)slots[i];
    uint row = matrix_row(i), column = matrix_column(i);
    for (uint j = 0; j < 2; j++) {
      float sum = (float)own->c.lanes[j];
      for (uint k = 0; k < 8; k++) sum = __builtin_fmaf(a[row][k], b[k][column + j], sum);
      own->d.lanes[j] = (D)sum;
    }
  }
}
} // namespace elv

namespace metal {
#define ELV_MATRIX_MEMORY(space)                                                                                                         \
  template <class T, class U>                                                                                                            \
  inline void simdgroup_load(thread simdgroup_matrix<T, 8, 8>& d, const space U* source, ulong stride = 8, ulong2 origin = ulong2(0ul),  \
                             bool transpose = false, ELV_HERE) {                                                                         \
    elv::matrix_load(d, source, stride, origin, transpose, file, line);                                                                  \
  }                                                                                                                                      \
  template <class T, class U>                                                                                                            \
  inline void simdgroup_store(simdgroup_matrix<T, 8, 8> a, space U* target, ulong stride = 8, ulong2 origin = ulong2(0ul),               \
                              bool transpose = false, ELV_HERE) {                                                                        \
    elv::matrix_store(a, target, stride, origin, transpose, file, line);                                                                 \
  }
ELV_MATRIX_MEMORY(device)
ELV_MATRIX_MEMORY(threadgroup)
#undef ELV_MATRIX_MEMORY

template <class D, class A, class B, class C>
inline void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a, simdgroup_matrix<B, 8, 8> b,
                                          simdgroup_matrix<C, 8, 8> c, ELV_HERE) {
  elv::product_slot<D, A, B, C> own;
  own.a = a.elements;
  own.b = b.elements;
  own.c = c.elements;
  elv_collective(&elv::matrix_product<D, A, B, C>, &own, "simdgroup_multiply_accumulate", file, line);
  d.elements = own.d;
}
template <class D, class A, class B>
inline void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a, simdgroup_matrix<B, 8, 8> b, ELV_HERE) {
  simdgroup_matrix<D, 8, 8> zero = make_filled_simdgroup_matrix<D, 8, 8>((D)0);
  simdgroup_multiply_accumulate(d, a, b, zero, file, line);
}
template <class T> inline simdgroup_matrix<T, 8, 8> operator*(simdgroup_matrix<T, 8, 8> a, simdgroup_matrix<T, 8, 8> b) {
  simdgroup_matrix<T, 8, 8> d;
  simdgroup_multiply(d, a, b);
  return d;
}
} // namespace metal
