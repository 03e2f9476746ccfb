// Adds two arrays, one element a thread: the first kernel most people write.
#include <metal_stdlib>
using namespace metal;

kernel void vector_add(device const float* a [[buffer(0)]],
                       device const float* b [[buffer(1)]],
                       device float* sum [[buffer(2)]],
                       uint index [[thread_position_in_grid]])
{
    sum[index] = a[index] + b[index];
}
