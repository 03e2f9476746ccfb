// Strict products of a few rows with a b whose elements of a line are neighbours: a linear layer while it decodes.
//
// A simdgroup makes ROWS x COLUMNS elements of y in registers, with one or two 16-byte loads a line and lane. Memory: b is read once for ROWS rows, a comes
// from the caches. Order: dot.metal, or, fixed, dot/tile.metal. A single row that is not too long has row.metal.

template <typename A, typename B, typename C, typename Y, uint ROWS, uint COLUMNS, uint FIXED>
[[kernel, max_total_threads_per_threadgroup(128)]] void matmul(
    device const A* a [[buffer(0)]],
    device const B* b [[buffer(1)]],
    device const C* bias [[buffer(2)]],
    device Y* y [[buffer(3)]],
    constant Params& p [[buffer(4)]],
    uint index [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const Place place(p, index, ROWS, SIMDGROUPS * COLUMNS);
    const uint m = uint(p.m), n = uint(p.n), row = place.row, column = place.column + simdgroup * COLUMNS;
    // More elements of b in flight would leave room for fewer simdgroups.
    constexpr uint AHEAD = COLUMNS == 1 ? 12 / sizeof(B) : 4 / COLUMNS;
    typename Dots<IsFixed<FIXED, A, B>::value, Lines<A>, Lines<B>, ROWS, COLUMNS, AHEAD>::Tile tile;
    if (column < n) {
        tile.start(lines(p, p.b, b, place.batch, column, n), uint(p.k), lane);
    }
    await_launches();
    if (column >= n) {
        return;
    }
    const float sum = tile.finish(lines(p, p.a, a, place.batch, row, m), uint(p.k), lane);

    typedef LaneSums<ROWS * COLUMNS, 32> Tree;
    const uint at = Tree::first(lane), r = row + at / COLUMNS, c = column + at % COLUMNS;
    if (Tree::leads(lane) && r < m && c < n) {
        finish(p, bias, y, place, r, c, sum);
    }
}
