// Sums an array: each threadgroup adds its part in threadgroup memory, half as many threads at each step, and writes one number.
#include <metal_stdlib>
using namespace metal;

kernel void reduce(device const float* x [[buffer(0)]],
                   device float* sums [[buffer(1)]],
                   threadgroup float* partial [[threadgroup(0)]],
                   uint index [[thread_position_in_grid]],
                   uint thread_index [[thread_position_in_threadgroup]],
                   uint threads [[threads_per_threadgroup]],
                   uint group [[threadgroup_position_in_grid]])
{
    partial[thread_index] = x[index];
    for (uint count = threads / 2; count > 0; count /= 2) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (thread_index < count) {
            partial[thread_index] += partial[thread_index + count];
        }
    }
    if (thread_index == 0) {
        sums[group] = partial[0];
    }
}
