// Fast products of many rows: fast.metal, then scale and bias, EDGE neighbouring elements of y at a time.

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
    tile.share(shared, simdgroup);
    for (uint i = thread_index; i < EDGE * EDGE; i += FAST_THREADS) {
        const uint row = place.row + i / EDGE, column = place.column + i % EDGE;
        if (row < m && column < n) {
            finish(p, bias, y, place, row, column, shared[i / EDGE * FAST_PITCH + i % EDGE]);
        }
    }
}
