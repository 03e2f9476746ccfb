// Strict products of more than a few rows. Memory: each operand is read once for every tile of the other, through the caches. Order: strict.metal.

template <typename A, typename B, typename C, typename Y, uint DOWN>
[[kernel, max_total_threads_per_threadgroup(256)]] void matmul_tiled(
    device const A* a [[buffer(0)]],
    device const B* b [[buffer(1)]],
    device const C* bias [[buffer(2)]],
    device Y* y [[buffer(3)]],
    constant Params& p [[buffer(4)]],
    threadgroup float* shared [[threadgroup(0)]],
    uint index [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    StrictTile<DOWN> tile(lane, simdgroup);
    const Place place(p, index, tile.ROWS, tile.COLUMNS);
    const uint m = uint(p.m), n = uint(p.n);
    const float sum = tile.product(lines(p, p.a, a, place.batch, place.row, m), lines(p, p.b, b, place.batch, place.column, n), uint(p.k), shared);
    const uint row = place.row + tile.row(), column = place.column + tile.column();
    if (row < m && column < n) {
        finish(p, bias, y, place, row, column, sum);
    }
}
