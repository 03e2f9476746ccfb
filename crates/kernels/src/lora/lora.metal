// y = round((x W^T + bias) + scale t B^T), strict, with t = x A^T at hand: one pass over W, as matmul.metal.

template <typename X, typename W, typename B, typename C, uint ROWS, uint COLUMNS, uint FIXED>
[[kernel, max_total_threads_per_threadgroup(128)]] void lora(
    device const X* x [[buffer(0)]],
    device const W* weight [[buffer(1)]],
    device const float* projected [[buffer(2)]],
    device const B* b [[buffer(3)]],
    device const C* bias [[buffer(4)]],
    device X* y [[buffer(5)]],
    constant Params& p [[buffer(6)]],
    uint index [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const Place place(p, index, ROWS, SIMDGROUPS * COLUMNS);
    const uint m = uint(p.m), n = uint(p.n), row = place.row, column = place.column + simdgroup * COLUMNS;
    if (column >= n) {
        return;
    }
    typename Dots<IsFixed<FIXED, X, W>::value, Lines<X>, Lines<W>, ROWS, COLUMNS>::Tile tile;
    tile.start(row_major(weight, p.k, column, n), uint(p.k), lane);
    typename Dots<IsFixed<FIXED, float, B>::value, Lines<float>, Lines<B>, ROWS, COLUMNS>::Tile adapter;
    const float delta = adapter.product(row_major(projected, p.r, row, m), row_major(b, p.r, column, n), uint(p.r), lane);
    const float sum = tile.finish(row_major(x, p.k, row, m), uint(p.k), lane);

    typedef LaneSums<ROWS * COLUMNS, 32> Tree;
    const uint at = Tree::first(lane), r = row + at / COLUMNS, c = column + at % COLUMNS;
    if (Tree::leads(lane) && r < m && c < n) {
        finish(p, bias, y, r, c, sum, delta * p.scale);
    }
}
