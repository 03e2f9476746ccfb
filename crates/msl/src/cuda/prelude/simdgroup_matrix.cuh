// <metal_simdgroup_matrix>: 8 × 8 matrices spread over a simdgroup, two adjacent elements of a row in each lane.
#pragma once

// Which elements a lane holds is Apple's order if the text may depend on it, through `thread_elements`; else that of the tensor cores.
namespace elv {
#ifdef ELV_THREAD_ELEMENTS
__forceinline__ uint matrix_row(uint lane) { return ((lane / 4) & 4) + (lane / 2) % 4; }
__forceinline__ uint matrix_column(uint lane) { return ((lane / 4) & 2) * 2 + (lane % 2) * 2; }
// The lane that holds an element.
__forceinline__ uint matrix_lane(uint row, uint column) { return (row & 4) * 4 + (column & 4) * 2 + (row & 3) * 2 + (column / 2 & 1); }
// Between the order in use and that of the tensor cores.
template <class T> __forceinline__ T to_tensor_order(T pair) { return shuffle(pair, matrix_lane(lane() / 4, lane() % 4 * 2), all_lanes); }
template <class T> __forceinline__ T from_tensor_order(T pair) {
  return shuffle(pair, matrix_row(lane()) * 4 + matrix_column(lane()) / 2, all_lanes);
}
#else
__forceinline__ uint matrix_row(uint lane) { return lane / 4; }
__forceinline__ uint matrix_column(uint lane) { return lane % 4 * 2; }
__forceinline__ uint matrix_lane(uint row, uint column) { return row * 4 + column / 2; }
template <class T> __forceinline__ T to_tensor_order(T pair) { return pair; }
template <class T> __forceinline__ T from_tensor_order(T pair) { return pair; }
#endif
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

} // namespace metal

namespace elv {
// a b + c on the tensor cores, as the upper half of a product of 16 rows.
template <class T> __forceinline__ metal::vec<float, 2> tensor_product(metal::vec<T, 2> a, metal::vec<T, 2> b, metal::vec<float, 2> c) {
  uint left = __builtin_bit_cast(uint, to_tensor_order(a)), right = __builtin_bit_cast(uint, to_tensor_order(b)), none = 0;
  metal::vec<float, 2> sum = to_tensor_order(c);
  float below, below_too;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(right) : "r"(right));
#define ELV_PRODUCT(type)                                                                                                   \
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %9};" \
               : "=f"(sum.x), "=f"(sum.y), "=f"(below), "=f"(below_too)                                                     \
               : "r"(left), "r"(none), "r"(right), "f"(sum.x), "f"(sum.y), "f"(0.0f))
  if constexpr (metal::is_same_v<T, half>)
    ELV_PRODUCT("f16");
  else
    ELV_PRODUCT("bf16");
#undef ELV_PRODUCT
  return from_tensor_order(sum);
}
// The same by multiplication and addition in float, in ascending order.
template <class A, class B> __forceinline__ metal::vec<float, 2> plain_product(metal::vec<A, 2> a, metal::vec<B, 2> b, metal::vec<float, 2> sum) {
  uint row = matrix_row(lane()), column = matrix_column(lane());
#pragma unroll
  for (uint k = 0; k < 8; k += 2) {
    metal::vec<A, 2> left = shuffle(a, matrix_lane(row, k), all_lanes);
    metal::vec<B, 2> first = shuffle(b, matrix_lane(k, column), all_lanes), second = shuffle(b, matrix_lane(k + 1, column), all_lanes);
    sum.x = ::__fmaf_rn((float)left.y, (float)second.x, ::__fmaf_rn((float)left.x, (float)first.x, sum.x));
    sum.y = ::__fmaf_rn((float)left.y, (float)second.y, ::__fmaf_rn((float)left.x, (float)first.y, sum.y));
  }
  return sum;
}
#if __CUDA_ARCH__ >= 800 && !defined(ELV_EXACT_PRODUCTS)
template <class A, class B> constexpr bool on_tensor_cores = metal::is_same_v<A, B> && is_narrow<A>;
#else
template <class A, class B> constexpr bool on_tensor_cores = false;
#endif
} // namespace elv

namespace metal {
// d = a b + c, accumulated in float and rounded once.
template <class D, class A, class B, class C>
__forceinline__ void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a, simdgroup_matrix<B, 8, 8> b,
                                                   simdgroup_matrix<C, 8, 8> c) {
  if constexpr (elv::on_tensor_cores<A, B>)
    d.elements = vec<D, 2>(elv::tensor_product(a.elements, b.elements, vec<float, 2>(c.elements)));
  else
    d.elements = vec<D, 2>(elv::plain_product(a.elements, b.elements, vec<float, 2>(c.elements)));
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
