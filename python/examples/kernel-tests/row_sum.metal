#include <metal_stdlib>
using namespace metal;

// The sum of each row of a matrix: a threadgroup of 64 threads for each.
kernel void row_sum(
    device const float* x [[buffer(0)]],
    device float* sums [[buffer(1)]],
    constant uint& columns [[buffer(2)]],
    uint row [[threadgroup_position_in_grid]],
    uint t [[thread_position_in_threadgroup]]
) {
    threadgroup float partial[64];
    float sum = 0;
    for (uint column = t; column < columns; column += 64)
        sum += x[row * columns + column];
    partial[t] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint half_width = 32; half_width > 0; half_width /= 2) {
        if (t < half_width)
            partial[t] += partial[t + half_width];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (t == 0)
        sums[row] = partial[0];
}
