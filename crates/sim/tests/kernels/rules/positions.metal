#include <metal_stdlib>
using namespace metal;

kernel void k( // rejected: positions
    device uint* out [[buffer(0)]],
    uint2 place [[thread_position_in_grid]],
    uint threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
    out[place.x] = place.y * threads + lane;
}
