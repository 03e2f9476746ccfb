#include <metal_stdlib>
using namespace metal;

kernel void k(device ulong* a [[buffer(0)]], device bfloat* b [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    a[i] = simd_sum(a[i]); // rejected: simd-type
    b[i] = simd_max(b[i]); // rejected: simd-type
    bool any = simd_shuffle_xor(a[i] > 0, 1); // rejected: simd-type
    a[i] = as_type<ulong>(simd_shuffle_xor(as_type<uint2>(a[i]), 1)) + any;
    b[i] = bfloat(simd_max(float(b[i])));
}
