#include <metal_stdlib>
using namespace metal;

kernel void k(device float* out [[buffer(30)]]) { out[0] = 1; }

kernel void l(device float* out [[buffer(0)]], constant float& x [[buffer(31)]]) { out[0] = x; } // rejected: buffer-index
