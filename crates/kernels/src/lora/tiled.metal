// As lora.metal, for more than a few rows.

template <typename X, typename W, typename B, typename C, uint DOWN>
[[kernel, max_total_threads_per_threadgroup(256)]] void lora_tiled(
    device const X* x [[buffer(0)]],
    device const W* weight [[buffer(1)]],
    device const float* projected [[buffer(2)]],
    device const B* b [[buffer(3)]],
    device const C* bias [[buffer(4)]],
    device X* y [[buffer(5)]],
    constant Params& p [[buffer(6)]],
    threadgroup float* shared [[threadgroup(0)]],
    uint index [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    StrictTile<DOWN> tile(lane, simdgroup);
    const Place place(p, index, tile.ROWS, tile.COLUMNS);
    const uint m = uint(p.m), n = uint(p.n);
    const float delta = tile.product(row_major(projected, p.r, place.row, m), row_major(b, p.r, place.column, n), uint(p.r), shared);
    const float sum = tile.product(row_major(x, p.k, place.row, m), row_major(weight, p.k, place.column, n), uint(p.k), shared);
    const uint row = place.row + tile.row(), column = place.column + tile.column();
    if (row < m && column < n) {
        finish(p, bias, y, row, column, sum, delta * p.scale);
    }
}
