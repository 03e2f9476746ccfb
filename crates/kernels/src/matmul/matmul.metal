// Strict products of a few rows with a b whose elements of a line are neighbours: a linear layer while it decodes.
//
// A simdgroup makes ROWS x COLUMNS elements of y in registers, with one or two 16-byte loads a line and lane. Memory: b is read once for ROWS rows, a comes
// from the caches; a single row that is not too long stays in threadgroup memory. Order: dot.metal.

// Where the rows of a come from.
template <uint SHARED>
struct Left {
    template <typename A>
    static Lines<A> of(Lines<A> rows, uint, uint, threadgroup float*) {
        return rows;
    }
};

template <>
struct Left<1> {
    template <typename A>
    static SharedRow of(Lines<A> rows, uint k, uint thread_index, threadgroup float* memory) {
        const RowReader<A> from(rows.origin, ulong(rows.step), k);
        return share_row(from, k, thread_index, 32 * SIMDGROUPS, reinterpret_cast<threadgroup float4*>(memory));
    }
};

template <typename A, uint SHARED>
struct LeftType {
    typedef Lines<A> Type;
};

template <typename A>
struct LeftType<A, 1> {
    typedef SharedRow Type;
};

template <typename A, typename B, typename C, typename Y, uint ROWS, uint COLUMNS, uint SHARED>
[[kernel, max_total_threads_per_threadgroup(128)]] void matmul(
    device const A* a [[buffer(0)]],
    device const B* b [[buffer(1)]],
    device const C* bias [[buffer(2)]],
    device Y* y [[buffer(3)]],
    constant Params& p [[buffer(4)]],
    threadgroup float* memory [[threadgroup(0)]],
    uint index [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const Place place(p, index, ROWS, SIMDGROUPS * COLUMNS);
    const uint m = uint(p.m), n = uint(p.n), row = place.row, column = place.column + simdgroup * COLUMNS;
    // More elements of b on their way would leave room for fewer simdgroups.
    constexpr uint AHEAD = COLUMNS == 1 ? 12 / sizeof(B) : 4 / COLUMNS;
    DotTile<typename LeftType<A, SHARED>::Type, Lines<B>, ROWS, COLUMNS, AHEAD> tile;
    if (column < n) {
        tile.start(lines(p, p.b, b, place.batch, column, n), uint(p.k), lane);
    }
    await_launches();
    const auto rows = Left<SHARED>::of(lines(p, p.a, a, place.batch, row, m), uint(p.k), 32 * simdgroup + lane, memory);
    if (column >= n) {
        return;
    }
    const float sum = tile.finish(rows, uint(p.k), lane);

    typedef LaneSums<ROWS * COLUMNS, 32> Tree;
    const uint at = Tree::first(lane), r = row + at / COLUMNS, c = column + at % COLUMNS;
    if (Tree::leads(lane) && r < m && c < n) {
        finish(p, bias, y, place, r, c, sum);
    }
}
