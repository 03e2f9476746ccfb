// Strict products of one row with a b whose elements of a line are neighbours: a linear layer while it decodes.
//
// Every threadgroup keeps the row; its simdgroups take a column in turn, until there are no more, and send for the next one's first elements before the
// last of a column are summed. Memory: b is read once; the row by every threadgroup, through the caches. Order: dot.metal, or, fixed, dot/tile.metal.

constant constexpr uint ROW_SIMDGROUPS = 8;

template <typename A, typename B, typename C, typename Y, uint AHEAD, uint FIXED>
[[kernel, max_total_threads_per_threadgroup(256)]] void matmul_row(
    device const A* a [[buffer(0)]],
    device const B* b [[buffer(1)]],
    device const C* bias [[buffer(2)]],
    device Y* y [[buffer(3)]],
    constant Params& p [[buffer(4)]],
    threadgroup float4* memory [[threadgroup(0)]],
    uint index [[threadgroup_position_in_grid]],
    uint groups [[threadgroups_per_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const Place place(p, index, 1, ROW_SIMDGROUPS);
    const uint n = uint(p.n), k = uint(p.k), step = groups * ROW_SIMDGROUPS;
    uint column = place.column + simdgroup;
    constexpr bool is_fixed = IsFixed<FIXED, A, B>::value;
    typedef KeptRow<is_fixed> Kept;
    typename Dots<is_fixed, typename Kept::Type, Lines<B>, 1, 1, AHEAD>::Tile tile;
    if (column < n) {
        tile.start(lines(p, p.b, b, place.batch, column, n), k, lane);
    }
    await_launches();
    const Lines<A> from = lines(p, p.a, a, place.batch, 0, 1);
    const typename Kept::Type row = Kept::share(RowReader<A>(from.origin, ulong(from.step), k), k, 32 * simdgroup + lane, 32 * ROW_SIMDGROUPS, memory);
    while (column < n) {
        const uint next = column + step;
        tile.fold_lines(row, k, lane, next < n, lines(p, p.b, b, place.batch, min(next, n - 1), n));
        const float sum = tile.total(lane);
        if (lane == 0) {
            finish(p, bias, y, place, 0, column, sum);
        }
        column = next;
    }
}
