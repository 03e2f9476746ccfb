// What CUDA's prelude takes for granted, for clang without CUDA's headers: the functions that NVRTC has built in, over LLVM's for NVIDIA's GPUs.
#pragma once
#define __forceinline__ inline __attribute__((always_inline))
#define ELV_ELEMENTARY
// How compiled libraries know the lanes' elements of a matrix.
#define ELV_THREAD_ELEMENTS
#define constant

namespace elv_nvidia {
struct extent { unsigned int x, y, z; };
#define REGISTERS(name, register)                                                                                                          \
  __forceinline__ extent name() {                                                                                                          \
    return {(unsigned)__nvvm_read_ptx_sreg_##register##_x(), (unsigned)__nvvm_read_ptx_sreg_##register##_y(),                            \
            (unsigned)__nvvm_read_ptx_sreg_##register##_z()};                                                                            \
  }
REGISTERS(thread, tid)
REGISTERS(block_size, ntid)
REGISTERS(block, ctaid)
REGISTERS(grid, nctaid)
#undef REGISTERS
} // namespace elv_nvidia
#define threadIdx (::elv_nvidia::thread())
#define blockDim (::elv_nvidia::block_size())
#define blockIdx (::elv_nvidia::block())
#define gridDim (::elv_nvidia::grid())

// ---- simdgroups and barriers ------------------------------------------------------------------------------------------------------------------
__forceinline__ int __shfl_sync(unsigned int lanes, int value, int from) { return __nvvm_shfl_sync_idx_i32(lanes, value, from, 31); }
__forceinline__ int __shfl_xor_sync(unsigned int lanes, int value, int mask) { return __nvvm_shfl_sync_bfly_i32(lanes, value, mask, 31); }
__forceinline__ int __shfl_up_sync(unsigned int lanes, int value, int delta, int width) {
  return __nvvm_shfl_sync_up_i32(lanes, value, delta, (32 - width) << 8);
}
__forceinline__ int __shfl_down_sync(unsigned int lanes, int value, int delta, int width) {
  return __nvvm_shfl_sync_down_i32(lanes, value, delta, (32 - width) << 8 | 31);
}
__forceinline__ unsigned int __ballot_sync(unsigned int lanes, bool value) { return __nvvm_vote_ballot_sync(lanes, value); }
__forceinline__ unsigned int __activemask() {
  unsigned int lanes;
  asm volatile("activemask.b32 %0;" : "=r"(lanes));
  return lanes;
}
__forceinline__ void __syncwarp(unsigned int lanes) { __nvvm_bar_warp_sync(lanes); }
__forceinline__ void __threadfence() { __nvvm_membar_gl(); }
__forceinline__ void __threadfence_block() { __nvvm_membar_cta(); }

// ---- integers and atomics ---------------------------------------------------------------------------------------------------------------------
__forceinline__ int __popc(unsigned int x) { return __builtin_popcount(x); }
__forceinline__ int __popcll(unsigned long x) { return __builtin_popcountl(x); }
__forceinline__ int __ffs(unsigned int x) { return __builtin_ffs(x); }
__forceinline__ int __clz(unsigned int x) { return x == 0 ? 32 : __builtin_clz(x); }
__forceinline__ int __clzll(unsigned long x) { return x == 0 ? 64 : __builtin_clzl(x); }
__forceinline__ unsigned int __brev(unsigned int x) { return __builtin_bitreverse32(x); }
__forceinline__ unsigned long __brevll(unsigned long x) { return __builtin_bitreverse64(x); }
__forceinline__ long __mul64hi(long a, long b) { return (long)((__int128)a * b >> 64); }
__forceinline__ unsigned long __umul64hi(unsigned long a, unsigned long b) { return (unsigned long)((unsigned __int128)a * b >> 64); }
template <class T> __forceinline__ T atomicCAS(T* p, T expected, T desired) {
  __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
template <class T> __forceinline__ T atomicExch(T* p, T value) { return __atomic_exchange_n(p, value, __ATOMIC_RELAXED); }
#define UPDATE(name, operation) \
  template <class T> __forceinline__ T name(T* p, T value) { return operation(p, value, __ATOMIC_RELAXED); }
UPDATE(atomicAdd, __atomic_fetch_add)
UPDATE(atomicMin, __atomic_fetch_min)
UPDATE(atomicMax, __atomic_fetch_max)
UPDATE(atomicAnd, __atomic_fetch_and)
UPDATE(atomicOr, __atomic_fetch_or)
UPDATE(atomicXor, __atomic_fetch_xor)
#undef UPDATE

// ---- math -------------------------------------------------------------------------------------------------------------------------------------
__forceinline__ float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
__forceinline__ float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
__forceinline__ float sqrtf(float x) { return __builtin_sqrtf(x); }
__forceinline__ float floorf(float x) { return __builtin_floorf(x); }
__forceinline__ float ceilf(float x) { return __builtin_ceilf(x); }
__forceinline__ float truncf(float x) { return __builtin_truncf(x); }
__forceinline__ float roundf(float x) { return __builtin_roundf(x); }
__forceinline__ float rintf(float x) { return __builtin_rintf(x); }
__forceinline__ float fabsf(float x) { return __builtin_fabsf(x); }
__forceinline__ float fminf(float x, float y) { return __builtin_fminf(x, y); }
__forceinline__ float fmaxf(float x, float y) { return __builtin_fmaxf(x, y); }
__forceinline__ float copysignf(float x, float y) { return __builtin_copysignf(x, y); }
__forceinline__ float fdimf(float x, float y) { return x <= y ? 0.0f : x - y; }
// Those of elementary.h, which is read later.
#define UNARY(M) \
  M(exp) M(exp2) M(exp10) M(log) M(log2) M(log10) M(sin) M(cos) M(tan) M(asin) M(acos) M(atan) M(sinh) M(cosh) M(tanh) M(asinh) M(acosh) M(atanh) \
  M(sinpi) M(cospi)
#define DECLARED(name) float name##f(float);
UNARY(DECLARED)
float powf(float, float);
float atan2f(float, float);

__forceinline__ unsigned int float_bits(float x) { return __builtin_bit_cast(unsigned int, x); }
// x · 2^exponent, rounded once: no step but the last gives a subnormal number.
inline float ldexpf(float x, int exponent) {
  for (int i = 0; i < 2 && exponent > 127; i++, exponent -= 127) x *= 0x1p127f;
  for (int i = 0; i < 2 && exponent < -126; i++, exponent += 102) x *= 0x1p-102f;
  int held = exponent > 127 ? 127 : exponent < -126 ? -126 : exponent;
  return x * __builtin_bit_cast(float, (unsigned int)(held + 127) << 23);
}
inline int ilogbf(float x) {
  unsigned int bits = float_bits(x) & 0x7fffffffu;
  if (bits == 0) return -2147483647 - 1;
  if (bits >= 0x7f800000u) return bits == 0x7f800000u ? 2147483647 : -2147483647 - 1;
  return bits < 0x800000u ? -118 - __clz(bits) : (int)(bits >> 23) - 127;
}
inline float frexpf(float x, int* exponent) {
  unsigned int bits = float_bits(x) & 0x7fffffffu;
  bool is_number = bits != 0 && bits < 0x7f800000u;
  *exponent = is_number ? ilogbf(x) + 1 : 0;
  return is_number ? ldexpf(x, -*exponent) : x;
}
inline float nextafterf(float x, float y) {
  if (x != x || y != y) return x + y;
  if (x == y) return y;
  if (x == 0.0f) return copysignf(__builtin_bit_cast(float, 1u), y);
  return __builtin_bit_cast(float, float_bits(x) + ((y > x) == (x > 0.0f) ? 1u : ~0u));
}
// The remainder of a division that is rounded towards zero, exactly: bit by bit.
inline float fmodf(float x, float y) {
  unsigned int divisor = float_bits(y) & 0x7fffffffu, rest = float_bits(x) & 0x7fffffffu;
  if (divisor == 0 || rest >= 0x7f800000u || divisor > 0x7f800000u) return __builtin_bit_cast(float, 0x7fc00000u);
  if (rest < divisor) return x;
  int exponent = ilogbf(x), last = ilogbf(y);
  if (last < -126) last = -126;
  if (exponent < -126) exponent = -126;
  unsigned int a = rest < 0x800000u ? rest : (rest & 0x7fffffu) | 0x800000u, b = divisor < 0x800000u ? divisor : (divisor & 0x7fffffu) | 0x800000u;
  // Below the divisor's own exponent it would have further bits.
  for (; exponent >= last; exponent--) {
    if (a >= b) a -= b;
    if (exponent > last) a <<= 1;
  }
  return copysignf(ldexpf((float)a, last - 23), x);
}

#include "msl.cuh"

#define DEFINED(name) \
  inline float name##f(float x) { return msl::elv::elementary::name(x); }
UNARY(DEFINED)
inline float powf(float x, float y) { return msl::elv::elementary::pow(x, y); }
inline float atan2f(float y, float x) { return msl::elv::elementary::atan2(y, x); }
#undef UNARY

// ---- what compiled libraries call (air.h) -------------------------------------------------------------------------------------------------------
using namespace msl;
#define HERE
#define AND_HERE
#define PLACE
#define AND_PLACE
#define MEET(operation)
// The lanes that come to a call, from the control flow before it (air/lanes.rs).
#define LANES unsigned int among
#define AND_LANES , LANES
#define THESE among
#define AND_THESE , THESE
__forceinline__ uint elv_lane() { return elv::lane(); }
#define AIR extern "C" __attribute__((always_inline))

// Where the thread is, by coordinate, in a grid of so many threads.
AIR unsigned int elv_air_lanes_that(unsigned int among, bool value) { return __ballot_sync(among, value); }
AIR void elv_air_await_launches() { elv::await_launches(); }
#ifdef ELV_NONUNIFORM
AIR bool elv_air_is_outside(uint x, uint y, uint z) { return elv::is_outside(elv::threadgroup_size({x, y, z})); }
#define THREADGROUP                                                  \
  const elv::extent elv_size = elv::threadgroup_size(elv_grid);      \
  const elv::extent elv_place = elv::position_in_threadgroup(elv_size);
#else
#define THREADGROUP
#endif
#define POSITION(name)                                                        \
  AIR uint elv_air_##name(uint coordinate, uint x, uint y, uint z) {          \
    const elv::extent elv_grid = {x, y, z};                                   \
    THREADGROUP                                                               \
    const uint at[] = {ELV_##name, 1, 1};                                     \
    return at[coordinate];                                                    \
  }
POSITION(thread_position_in_grid)
POSITION(thread_position_in_threadgroup)
POSITION(threadgroup_position_in_grid)
POSITION(threads_per_threadgroup)
POSITION(dispatch_threads_per_threadgroup)
POSITION(threadgroups_per_grid)
POSITION(threads_per_grid)
POSITION(grid_size)
POSITION(grid_origin)
POSITION(thread_index_in_threadgroup)
POSITION(thread_index_in_simdgroup)
POSITION(simdgroup_index_in_threadgroup)
POSITION(threads_per_simdgroup)
POSITION(simdgroups_per_threadgroup)
POSITION(dispatch_simdgroups_per_threadgroup)
POSITION(quadgroup_index_in_threadgroup)
POSITION(thread_index_in_quadgroup)
POSITION(quadgroups_per_threadgroup)
POSITION(dispatch_quadgroups_per_threadgroup)
#undef POSITION
