// <metal_simdgroup_matrix>: 8 × 8 matrices spread over a simdgroup, two adjacent elements of a row in each lane.
#pragma once

namespace elv {
__forceinline__ uint matrix_row(uint lane) { return ((lane / 4) & 4) + (lane / 2) % 4; }
__forceinline__ uint matrix_column(uint lane) { return ((lane / 4) & 2) * 2 + (lane % 2) * 2; }
// The lane that holds an element.
__forceinline__ uint matrix_lane(uint row, uint column) { return (row & 4) * 4 + (column & 4) * 2 + (row & 3) * 2 + (column / 2 & 1); }
} // namespace elv

namespace metal {
template <class T, int Columns, int Rows = Columns> struct simdgroup_matrix {
  typedef vec<T, 2> storage_type;
  storage_type elements;

  simdgroup_matrix() = default;
  explicit __forceinline__ simdgroup_matrix(T diagonal) {
    uint row = elv::matrix_row(elv::lane()), column = elv::matrix_column(elv::lane());
    elements = storage_type(row == column ? diagonal : (T)0, row == column + 1 ? diagonal : (T)0);
  }
  __forceinline__ storage_type& thread_elements() { return elements; }
  __forceinline__ storage_type& thread_elements() const { return const_cast<storage_type&>(elements); }
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
template <class T> struct is_simdgroup_matrix : false_type {};
template <class T, int C, int R> struct is_simdgroup_matrix<simdgroup_matrix<T, C, R>> : true_type {};

template <class T, int C, int R = C> __forceinline__ simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, C, R> m;
  m.elements = vec<T, 2>(value);
  return m;
}
template <class T, int C, int R = C> __forceinline__ simdgroup_matrix<T, C, R> make_diagonal_simdgroup_matrix(T value) {
  return simdgroup_matrix<T, C, R>(value);
}
} // namespace metal

namespace elv {
// The element (row, column) of a matrix in memory, or (column, row) of a transposed one.
__forceinline__ ulong matrix_offset(ulong row, ulong column, ulong stride, metal::ulong2 origin, bool transpose) {
  return transpose ? (origin.y + column) * stride + origin.x + row : (origin.y + row) * stride + origin.x + column;
}
} // namespace elv

namespace metal {
template <class T, class U>
__forceinline__ void simdgroup_load(simdgroup_matrix<T, 8, 8>& d, const U* source, ulong stride = 8, ulong2 origin = ulong2(0ul), bool transpose = false) {
  ulong row = elv::matrix_row(elv::lane()), column = elv::matrix_column(elv::lane());
  d.elements.x = (T)source[elv::matrix_offset(row, column, stride, origin, transpose)];
  d.elements.y = (T)source[elv::matrix_offset(row, column + 1, stride, origin, transpose)];
}
template <class T, class U>
__forceinline__ void simdgroup_store(simdgroup_matrix<T, 8, 8> a, U* target, ulong stride = 8, ulong2 origin = ulong2(0ul), bool transpose = false) {
  ulong row = elv::matrix_row(elv::lane()), column = elv::matrix_column(elv::lane());
  target[elv::matrix_offset(row, column, stride, origin, transpose)] = a.elements.x;
  target[elv::matrix_offset(row, column + 1, stride, origin, transpose)] = a.elements.y;
}

// d = a b + c, accumulated in float in ascending order and rounded once.
template <class D, class A, class B, class C>
__forceinline__ void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a, simdgroup_matrix<B, 8, 8> b,
                                                   simdgroup_matrix<C, 8, 8> c) {
  uint row = elv::matrix_row(elv::lane()), column = elv::matrix_column(elv::lane());
  float x = (float)c.elements.x, y = (float)c.elements.y;
#pragma unroll
  for (uint k = 0; k < 8; k += 2) {
    vec<A, 2> left = elv::shuffle(a.elements, elv::matrix_lane(row, k));
    vec<B, 2> first = elv::shuffle(b.elements, elv::matrix_lane(k, column)), second = elv::shuffle(b.elements, elv::matrix_lane(k + 1, column));
    x = ::__fmaf_rn((float)left.y, (float)second.x, ::__fmaf_rn((float)left.x, (float)first.x, x));
    y = ::__fmaf_rn((float)left.y, (float)second.y, ::__fmaf_rn((float)left.x, (float)first.y, y));
  }
  d.elements = vec<D, 2>((D)x, (D)y);
}
template <class D, class A, class B>
__forceinline__ void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a, simdgroup_matrix<B, 8, 8> b) {
  simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, 8, 8>((D)0));
}
template <class T> __forceinline__ simdgroup_matrix<T, 8, 8> operator*(simdgroup_matrix<T, 8, 8> a, simdgroup_matrix<T, 8, 8> b) {
  simdgroup_matrix<T, 8, 8> d;
  simdgroup_multiply(d, a, b);
  return d;
}
} // namespace metal
