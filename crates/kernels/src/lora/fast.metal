// y = round(x W^T + t (scale B)^T + bias) by simdgroup matrices, with scale t at hand: the adapter's products start the tiles' sums.

template <typename X, typename W, typename B, typename C>
[[kernel]] void lora_fast(
    device const X* x [[buffer(0)]],
    device const W* weight [[buffer(1)]],
    device const float* projected [[buffer(2)]],
    device const B* b [[buffer(3)]],
    device const C* bias [[buffer(4)]],
    device X* y [[buffer(5)]],
    constant Params& p [[buffer(6)]],
    threadgroup float* shared [[threadgroup(0)]],
    uint index [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const Place place(p, index, EDGE, EDGE);
    const uint m = uint(p.m), n = uint(p.n), row = place.row, column = place.column;
    FastTile tile;
    tile.add(row_major(projected, p.r, row, m), row_major(b, p.r, column, n), uint(p.r), shared, thread_index, simdgroup);
    tile.add(row_major(x, p.k, row, m), row_major(weight, p.k, column, n), uint(p.k), shared, thread_index, simdgroup);
    threadgroup float* strip = shared + simdgroup * 8 * STRIP_PITCH;
    const uint lane = thread_index % 32, c = column + tile.first_column(simdgroup) + lane;
#pragma unroll
    for (uint rows = 0; rows < PART / 8; ++rows) {
        tile.share(rows, strip);
        for (uint i = 0; i < 8; ++i) {
            const uint r = row + tile.first_row(simdgroup) + 8 * rows + i;
            if (r < m && c < n) {
                finish(p, bias, y, r, c, strip[i * STRIP_PITCH + lane], 0.0f);
            }
        }
    }
}
