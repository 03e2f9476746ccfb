#include <metal_stdlib>
using namespace metal;

// A square matrix, transposed through a tile of threadgroup memory. The barrier between filling the tile and reading it is missing: a race, which many
// GPUs hide most of the time.
kernel void transpose_tiles(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    constant uint& n [[buffer(2)]],
    uint2 group [[threadgroup_position_in_grid]],
    uint2 t [[thread_position_in_threadgroup]]
) {
    threadgroup float tile[16][16];
    tile[t.y][t.x] = x[(group.y * 16 + t.y) * n + group.x * 16 + t.x];
    y[(group.x * 16 + t.y) * n + group.y * 16 + t.x] = tile[t.x][t.y];
}
