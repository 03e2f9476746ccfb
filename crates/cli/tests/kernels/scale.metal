#include <metal_stdlib>
using namespace metal;

constant bool negate [[function_constant(0)]];

kernel void scale(device const float* x [[buffer(0)]], device float* out [[buffer(1)]], constant uint& n [[buffer(2)]],
                  uint i [[thread_position_in_grid]]) {
    if (i < n) {
        out[i] = (negate ? -2.0f : 2.0f) * x[i];
    }
}

kernel void beyond(device const float* x [[buffer(0)]], device float* out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    out[i] = x[i + 1];
}

template <typename T>
kernel void reverse(device const T* x [[buffer(0)]], device T* out [[buffer(1)]], threadgroup T* tile [[threadgroup(0)]],
                    uint t [[thread_index_in_threadgroup]], uint count [[threads_per_threadgroup]]) {
    tile[t] = x[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[t] = tile[count - 1 - t];
}

template [[host_name("reverse_half")]] kernel decltype(reverse<half>) reverse<half>;
