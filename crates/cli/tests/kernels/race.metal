#include <metal_stdlib>
using namespace metal;

// Sums each threadgroup's elements. One barrier is missing.
kernel void sum(device const float* x [[buffer(0)]], device float* out [[buffer(1)]], threadgroup float* partial [[threadgroup(0)]],
                uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]], uint count [[threads_per_threadgroup]],
                uint group [[threadgroup_position_in_grid]]) {
    partial[t] = x[i];
    for (uint step = count / 2; step > 0; step /= 2) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (t < step) partial[t] += partial[t + step];
    }
    if (t == 1) out[group] = partial[0];
}
