// Fast products of many rows: fast.metal, then scale and bias, PART neighbouring elements of y at a time.

template <typename A, typename B, typename C, typename Y>
[[kernel]] void matmul_fast(
    device const A* a [[buffer(0)]],
    device const B* b [[buffer(1)]],
    device const C* bias [[buffer(2)]],
    device Y* y [[buffer(3)]],
    constant Params& p [[buffer(4)]],
    threadgroup float* shared [[threadgroup(0)]],
    uint index [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const Place place(p, index, EDGE, EDGE);
    const uint m = uint(p.m), n = uint(p.n);
    FastTile tile;
    tile.add(lines(p, p.a, a, place.batch, place.row, m), lines(p, p.b, b, place.batch, place.column, n), uint(p.k), shared, thread_index, simdgroup);
    threadgroup float* strip = shared + simdgroup * 8 * STRIP_PITCH;
    const uint first = place.row + tile.first_row(simdgroup), lane = thread_index % 32, column = place.column + tile.first_column(simdgroup) + lane;
#pragma unroll
    for (uint rows = 0; rows < PART / 8; ++rows) {
        tile.share(rows, strip);
        for (uint i = 0; i < 8; ++i) {
            const uint row = first + 8 * rows + i;
            if (row < m && column < n) {
                finish(p, bias, y, place, row, column, strip[i * STRIP_PITCH + lane]);
            }
        }
    }
}
