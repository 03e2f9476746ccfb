#include <metal_stdlib>
using namespace metal;

template <typename F>
static float twice(F f, float x) {
    return f(f(x));
}

kernel void k(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    float table[3] = {[0] = 1, [1] = 2}, scale = table[i % 2];
    auto half_of = [](float x) { return x / 2; }; // rejected: lambda
    out[i] = half_of(out[i]);
    out[i] += twice([&](float x) { return scale * x; }, 1); // rejected: lambda
}
