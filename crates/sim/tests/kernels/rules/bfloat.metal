#include <metal_stdlib>
using namespace metal;

static bfloat half_of(bfloat x) { return x * 0.5f; } // rejected: bfloat-conversion

kernel void k(device bfloat* a [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    bfloat zero = 0.0; // rejected: bfloat-conversion
    float wide = a[i];
    a[i] = wide; // rejected: bfloat-conversion
    a[i] = bfloat(wide) + zero + half_of(a[i]);
}
