#include <metal_stdlib>
using namespace metal;

kernel void k(device uint* a [[buffer(0)]], device float* x [[buffer(1)]], constant int& n [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    a[i] = min(a[i], n); // rejected: overload
    x[i] = max(x[i], 0); // rejected: overload
    x[i] = max(x[i], 0.0f) + min(a[i], uint(n));
}
