// <metal_simdgroup_matrix>
#pragma once

namespace metal {
template <class T, int Columns, int Rows = Columns> struct simdgroup_matrix {
  typedef vec<T, 2> storage_type;
  storage_type elements;
  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T);
  thread storage_type& thread_elements();
  const thread storage_type& thread_elements() const;
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
template <class T> struct is_simdgroup_matrix : false_type {};
template <class T, int C, int R> struct is_simdgroup_matrix<simdgroup_matrix<T, C, R>> : true_type {};

template <class T, int C, int R = C> simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T);
template <class T, int C, int R = C> simdgroup_matrix<T, C, R> make_diagonal_simdgroup_matrix(T);
#define ELV_MATRIX_MEMORY(space)                                                                                                             \
  template <class T> void simdgroup_load(thread simdgroup_matrix<T, 8, 8>&, const space T*, ulong = 8, ulong2 = ulong2(0ul), bool = false);   \
  template <class T> void simdgroup_store(simdgroup_matrix<T, 8, 8>, space T*, ulong = 8, ulong2 = ulong2(0ul), bool = false);
ELV_MATRIX_MEMORY(device)
ELV_MATRIX_MEMORY(threadgroup)
template <class D, class A, class B, class C>
void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8>&, simdgroup_matrix<A, 8, 8>, simdgroup_matrix<B, 8, 8>, simdgroup_matrix<C, 8, 8>);
template <class D, class A, class B>
void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8>&, simdgroup_matrix<A, 8, 8>, simdgroup_matrix<B, 8, 8>);
template <class T> simdgroup_matrix<T, 8, 8> operator*(simdgroup_matrix<T, 8, 8>, simdgroup_matrix<T, 8, 8>);
} // namespace metal
