// What compiled Metal libraries call, over the functions that texts call: `air.exp.f32` and `air.fast_exp.f32` become `elv_air_exp_f32`, and so on.
// Vectors have come apart before (air/intrinsics.rs). Compiled once for each device and set of flags and linked into every kernel as its representation,
// so that it is inlined and checked as a text's own functions are. The device's own file comes first: it says what of a call's place is handed over.

// ---- math -------------------------------------------------------------------------------------------------------------------------------------
#define UNARY(name)                                                  \
  AIR float elv_air_##name##_f32(float x) { return metal::name(x); } \
  AIR half elv_air_##name##_f16(half x) { return metal::name(x); }
UNARY(exp) UNARY(exp2) UNARY(exp10) UNARY(log) UNARY(log2) UNARY(log10) UNARY(sqrt) UNARY(rsqrt) UNARY(sin) UNARY(cos) UNARY(tan) UNARY(asin) UNARY(acos)
UNARY(atan) UNARY(sinh) UNARY(cosh) UNARY(tanh) UNARY(asinh) UNARY(acosh) UNARY(atanh) UNARY(sinpi) UNARY(cospi) UNARY(tanpi) UNARY(floor) UNARY(ceil)
UNARY(trunc) UNARY(round) UNARY(rint) UNARY(fract) UNARY(saturate) UNARY(sign)
#define BINARY(name)                                                             \
  AIR float elv_air_##name##_f32(float x, float y) { return metal::name(x, y); } \
  AIR half elv_air_##name##_f16(half x, half y) { return metal::name(x, y); }
BINARY(pow) BINARY(powr) BINARY(fmod) BINARY(atan2) BINARY(fmin) BINARY(fmax) BINARY(fdim) BINARY(step) BINARY(divide) BINARY(nextafter)
#define TERNARY(name)                                                                        \
  AIR float elv_air_##name##_f32(float x, float y, float z) { return metal::name(x, y, z); } \
  AIR half elv_air_##name##_f16(half x, half y, half z) { return metal::name(x, y, z); }
TERNARY(fma) TERNARY(clamp) TERNARY(mix) TERNARY(smoothstep) TERNARY(fmin3) TERNARY(fmax3) TERNARY(fmedian3)
AIR float elv_air_ldexp_f32(float x, int exponent) { return metal::ldexp(x, exponent); }
AIR half elv_air_ldexp_f16(half x, int exponent) { return metal::ldexp(x, exponent); }
AIR float elv_air_sincos_f32(float x, float* cosine) { return metal::sincos(x, *cosine); }
AIR float elv_air_modf_f32(float x, float* whole) { return metal::modf(x, *whole); }
AIR float elv_air_frexp_f32(float x, int* exponent) { return metal::frexp(x, *exponent); }
AIR int elv_air_ilogb_f32(float x) { return metal::ilogb(x); }

// ---- integers ---------------------------------------------------------------------------------------------------------------------------------
#define SIGNED(M) M(s_i8, char) M(s_i16, short) M(s_i32, int) M(s_i64, long)
#define UNSIGNED(M) M(u_i8, uchar) M(u_i16, ushort) M(u_i32, uint) M(u_i64, ulong)
#define PLAIN(M) M(i8, uchar) M(i16, ushort) M(i32, uint) M(i64, ulong)
#define INTEGER(suffix, T)                                                                \
  AIR T elv_air_min_##suffix(T a, T b) { return metal::min(a, b); }                       \
  AIR T elv_air_max_##suffix(T a, T b) { return metal::max(a, b); }                       \
  AIR T elv_air_clamp_##suffix(T a, T low, T high) { return metal::clamp(a, low, high); } \
  AIR T elv_air_abs_##suffix(T a) { return metal::abs(a); }                               \
  AIR T elv_air_mul_hi_##suffix(T a, T b) { return metal::mulhi(a, b); }                  \
  AIR T elv_air_add_sat_##suffix(T a, T b) { return metal::addsat(a, b); }                \
  AIR T elv_air_sub_sat_##suffix(T a, T b) { return metal::subsat(a, b); }                \
  AIR T elv_air_abs_diff_##suffix(T a, T b) { return (T)metal::absdiff(a, b); }           \
  AIR T elv_air_extract_bits_##suffix(T a, uint offset, uint bits) { return metal::extract_bits(a, offset, bits); }
SIGNED(INTEGER) UNSIGNED(INTEGER)
#define BITS(suffix, T)                                                       \
  AIR T elv_air_popcount_##suffix(T a) { return metal::popcount(a); }         \
  AIR T elv_air_clz_##suffix(T a, bool) { return metal::clz(a); }             \
  AIR T elv_air_ctz_##suffix(T a, bool) { return metal::ctz(a); }             \
  AIR T elv_air_reverse_bits_##suffix(T a) { return metal::reverse_bits(a); } \
  AIR T elv_air_rotate_##suffix(T a, T b) { return metal::rotate(a, b); }
PLAIN(BITS)

// ---- barriers, simdgroups and quadgroups: the place of a call comes last, where the device asks for it ---------------------------------------------
AIR void elv_air_wg_barrier(int flags, int AND_HERE) { metal::threadgroup_barrier((metal::mem_flags)flags AND_PLACE); }
AIR void elv_air_simdgroup_barrier(int flags, int AND_LANES) { metal::simdgroup_barrier((metal::mem_flags)flags AND_THESE); }
AIR void elv_air_atomic_fence(int flags, int order, int scope AND_HERE) {
  metal::atomic_thread_fence((metal::mem_flags)flags, (metal::memory_order)order, (metal::thread_scope)scope AND_PLACE);
}
AIR uint elv_air_get_thread_index_in_simdgroup_i32() { return elv_lane(); }
AIR ushort elv_air_get_thread_index_in_simdgroup_i16() { return (ushort)elv_lane(); }
#define ARITHMETIC(M) SIGNED(M) UNSIGNED(M) M(f32, float) M(f16, half) M(bf16, bfloat)
#define FOLDS(suffix, T) GROUP_FOLDS(simd, suffix, T) GROUP_FOLDS(quad, suffix, T)
#define GROUP_FOLDS(group, suffix, T)                                                                                                                  \
  AIR T elv_air_##group##_sum_##suffix(T a AND_LANES) { return metal::group##_sum(a AND_THESE); }                                                      \
  AIR T elv_air_##group##_product_##suffix(T a AND_LANES) { return metal::group##_product(a AND_THESE); }                                              \
  AIR T elv_air_##group##_min_##suffix(T a AND_LANES) { return metal::group##_min(a AND_THESE); }                                                      \
  AIR T elv_air_##group##_max_##suffix(T a AND_LANES) { return metal::group##_max(a AND_THESE); }                                                      \
  AIR T elv_air_##group##_prefix_inclusive_sum_##suffix(T a AND_LANES) { return metal::group##_prefix_inclusive_sum(a AND_THESE); }                    \
  AIR T elv_air_##group##_prefix_exclusive_sum_##suffix(T a AND_LANES) { return metal::group##_prefix_exclusive_sum(a AND_THESE); }                    \
  AIR T elv_air_##group##_prefix_inclusive_product_##suffix(T a AND_LANES) { return metal::group##_prefix_inclusive_product(a AND_THESE); }            \
  AIR T elv_air_##group##_prefix_exclusive_product_##suffix(T a AND_LANES) { return metal::group##_prefix_exclusive_product(a AND_THESE); }            \
  AIR T elv_air_##group##_broadcast_first_##suffix(T a AND_LANES) { return metal::group##_broadcast_first(a AND_THESE); }                              \
  AIR T elv_air_##group##_broadcast_##suffix(T a, ushort lane AND_LANES) { return metal::group##_broadcast(a, lane AND_THESE); }                       \
  AIR T elv_air_##group##_shuffle_##suffix(T a, ushort lane AND_LANES) { return metal::group##_shuffle(a, lane AND_THESE); }                           \
  AIR T elv_air_##group##_shuffle_xor_##suffix(T a, ushort mask AND_LANES) { return metal::group##_shuffle_xor(a, mask AND_THESE); }                   \
  AIR T elv_air_##group##_shuffle_up_##suffix(T a, ushort delta AND_LANES) { return metal::group##_shuffle_up(a, delta AND_THESE); }                   \
  AIR T elv_air_##group##_shuffle_down_##suffix(T a, ushort delta AND_LANES) { return metal::group##_shuffle_down(a, delta AND_THESE); }               \
  AIR T elv_air_##group##_shuffle_rotate_up_##suffix(T a, ushort delta AND_LANES) { return metal::group##_shuffle_rotate_up(a, delta AND_THESE); }     \
  AIR T elv_air_##group##_shuffle_rotate_down_##suffix(T a, ushort delta AND_LANES) { return metal::group##_shuffle_rotate_down(a, delta AND_THESE); } \
  AIR T elv_air_##group##_shuffle_and_fill_up_##suffix(T a, T fill, ushort delta, ushort modulo AND_LANES) {                                           \
    return metal::group##_shuffle_and_fill_up(a, fill, delta, modulo AND_THESE);                                                                       \
  }                                                                                                                                                    \
  AIR T elv_air_##group##_shuffle_and_fill_down_##suffix(T a, T fill, ushort delta, ushort modulo AND_LANES) {                                         \
    return metal::group##_shuffle_and_fill_down(a, fill, delta, modulo AND_THESE);                                                                     \
  }
ARITHMETIC(FOLDS)
#define BITWISE(suffix, T)                                                                \
  AIR T elv_air_simd_and_##suffix(T a AND_LANES) { return metal::simd_and(a AND_THESE); } \
  AIR T elv_air_simd_or_##suffix(T a AND_LANES) { return metal::simd_or(a AND_THESE); }   \
  AIR T elv_air_simd_xor_##suffix(T a AND_LANES) { return metal::simd_xor(a AND_THESE); } \
  AIR T elv_air_quad_and_##suffix(T a AND_LANES) { return metal::quad_and(a AND_THESE); } \
  AIR T elv_air_quad_or_##suffix(T a AND_LANES) { return metal::quad_or(a AND_THESE); }   \
  AIR T elv_air_quad_xor_##suffix(T a AND_LANES) { return metal::quad_xor(a AND_THESE); }
SIGNED(BITWISE) UNSIGNED(BITWISE)
AIR bool elv_air_simd_all(bool a AND_LANES) { return metal::simd_all(a AND_THESE); }
AIR bool elv_air_simd_any(bool a AND_LANES) { return metal::simd_any(a AND_THESE); }
AIR bool elv_air_quad_all(bool a AND_LANES) { return metal::quad_all(a AND_THESE); }
AIR bool elv_air_quad_any(bool a AND_LANES) { return metal::quad_any(a AND_THESE); }
AIR bool elv_air_simd_is_first(LANES) { return metal::simd_is_first(THESE); }
AIR ulong elv_air_simd_ballot_i64(bool a AND_LANES) { return (ulong)metal::simd_ballot(a AND_THESE); }
AIR ulong elv_air_simd_active_threads_mask_i64(LANES) { return (ulong)metal::simd_active_threads_mask(THESE); }

// ---- matrices: two elements of each lane ---------------------------------------------------------------------------------------------------------
#define PRODUCT(D, SD, A, SA, B, SB)                                                                      \
  AIR void elv_air_matrix_product_##SD##_##SA##_##SB(A a0, A a1, B b0, B b1, D c0, D c1, D* d AND_HERE) { \
    metal::simdgroup_matrix<D, 8, 8> r, c;                                                                \
    metal::simdgroup_matrix<A, 8, 8> a;                                                                   \
    metal::simdgroup_matrix<B, 8, 8> b;                                                                   \
    a.elements = metal::vec<A, 2>(a0, a1);                                                                \
    b.elements = metal::vec<B, 2>(b0, b1);                                                                \
    c.elements = metal::vec<D, 2>(c0, c1);                                                                \
    metal::simdgroup_multiply_accumulate(r, a, b, c AND_PLACE);                                           \
    d[0] = r.elements.x;                                                                                  \
    d[1] = r.elements.y;                                                                                  \
  }
#define PRODUCTS(D, SD)                                                                                                 \
  PRODUCT(D, SD, float, f32, float, f32) PRODUCT(D, SD, float, f32, half, f16) PRODUCT(D, SD, float, f32, bfloat, bf16) \
  PRODUCT(D, SD, half, f16, float, f32) PRODUCT(D, SD, half, f16, half, f16) PRODUCT(D, SD, half, f16, bfloat, bf16)    \
  PRODUCT(D, SD, bfloat, bf16, float, f32) PRODUCT(D, SD, bfloat, bf16, half, f16) PRODUCT(D, SD, bfloat, bf16, bfloat, bf16)
PRODUCTS(float, f32) PRODUCTS(half, f16) PRODUCTS(bfloat, bf16)
// An element's offset is (x + column) · across + (y + row) · down: a transposed matrix has the two exchanged.
#define MATRIX(suffix, T)                                                                                           \
  AIR void elv_air_matrix_diagonal_##suffix(T value, T* d) {                                                        \
    metal::simdgroup_matrix<T, 8, 8> m(value);                                                                      \
    d[0] = m.elements.x;                                                                                            \
    d[1] = m.elements.y;                                                                                            \
  }                                                                                                                 \
  AIR void elv_air_matrix_load_##suffix(const T* from, ulong across, ulong down, ulong x, ulong y, T* d AND_HERE) { \
    MEET("simdgroup_load");                                                                                         \
    ulong row = elv::matrix_row(elv_lane()), column = elv::matrix_column(elv_lane());                               \
    for (ulong i = 0; i < 2; i++) d[i] = from[(x + column + i) * across + (y + row) * down];                        \
  }                                                                                                                 \
  AIR void elv_air_matrix_store_##suffix(T* to, ulong across, ulong down, ulong x, ulong y, T a0, T a1 AND_HERE) {  \
    MEET("simdgroup_store");                                                                                        \
    ulong row = elv::matrix_row(elv_lane()), column = elv::matrix_column(elv_lane());                               \
    to[(x + column) * across + (y + row) * down] = a0;                                                              \
    to[(x + column + 1) * across + (y + row) * down] = a1;                                                          \
  }
MATRIX(f32, float) MATRIX(f16, half) MATRIX(bf16, bfloat)

// ---- atomics: orders, scope and volatility come last ---------------------------------------------------------------------------------------------
#define UPDATE(name, suffix, T)                                                                             \
  AIR T elv_air_atomic_##name##_##suffix(void* p, T value, int, int, bool) {                                \
    return metal::atomic_fetch_##name##_explicit((metal::atomic<T>*)p, value, metal::memory_order_relaxed); \
  }
#define UPDATES(suffix, T) UPDATE(add, suffix, T) UPDATE(sub, suffix, T) UPDATE(min, suffix, T) UPDATE(max, suffix, T)
#define BIT_UPDATES(suffix, T) UPDATE(and, suffix, T) UPDATE(or, suffix, T) UPDATE(xor, suffix, T)
#define MEMORY(suffix, T)                                                                                                                                \
  AIR T elv_air_atomic_load_##suffix(void* p, int, int, bool) { return metal::atomic_load_explicit((metal::atomic<T>*)p, metal::memory_order_relaxed); } \
  AIR void elv_air_atomic_store_##suffix(void* p, T value, int, int, bool) {                                                                             \
    metal::atomic_store_explicit((metal::atomic<T>*)p, value, metal::memory_order_relaxed);                                                              \
  }                                                                                                                                                      \
  AIR T elv_air_atomic_xchg_##suffix(void* p, T value, int, int, bool) {                                                                                 \
    return metal::atomic_exchange_explicit((metal::atomic<T>*)p, value, metal::memory_order_relaxed);                                                    \
  }                                                                                                                                                      \
  AIR T elv_air_atomic_cmpxchg_weak_##suffix(void* p, T* expected, T desired, int, int, int, bool) {                                                     \
    metal::atomic_compare_exchange_weak_explicit((metal::atomic<T>*)p, expected, desired, metal::memory_order_relaxed, metal::memory_order_relaxed);     \
    return *expected;                                                                                                                                    \
  }
UPDATES(s_i32, int) UPDATES(u_i32, uint) UPDATES(s_i64, long) UPDATES(u_i64, ulong) UPDATE(add, f32, float) UPDATE(sub, f32, float)
BIT_UPDATES(s_i32, int) BIT_UPDATES(u_i32, uint) BIT_UPDATES(s_i64, long) BIT_UPDATES(u_i64, ulong)
MEMORY(i32, uint) MEMORY(i64, ulong) MEMORY(f32, float)
