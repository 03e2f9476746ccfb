// y = round(bias + scale (x A^T) B^T), for a product to be added to. A threadgroup makes x A^T of its rows, a simdgroup each element of a column of it,
// and then its rows of y. Memory: A and B once for each threadgroup, from the caches. Order of x A^T: dot.metal.

constant constexpr uint ADAPTER_SIMDGROUPS = 8;

template <typename X, typename A, typename B, typename C, uint ROWS>
[[kernel, max_total_threads_per_threadgroup(256)]] void lora_adapter(
    device const X* x [[buffer(0)]],
    device const A* a [[buffer(1)]],
    device const B* b [[buffer(2)]],
    device const C* bias [[buffer(3)]],
    device X* y [[buffer(4)]],
    constant Params& p [[buffer(5)]],
    threadgroup float* projected [[threadgroup(0)]],
    uint index [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    typedef LaneSums<ROWS, 32> Tree;
    const uint m = uint(p.m), n = uint(p.n), k = uint(p.k), rank = uint(p.r), row = index * ROWS;
    for (uint r = simdgroup; r < rank; r += ADAPTER_SIMDGROUPS) {
        DotTile<Lines<X>, Lines<A>, ROWS, 1> tile;
        const float t = tile.product(row_major(x, k, row, m), row_major(a, k, r, rank), k, lane);
        if (Tree::leads(lane)) {
            projected[Tree::first(lane) * rank + r] = t * p.scale;
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    const Lines<B> factors = row_major(b, rank, 0, n);
    for (uint column = thread_index; column < n; column += 32 * ADAPTER_SIMDGROUPS) {
        float sums[ROWS] = {};
        for (uint r = 0; r < rank; r += SLOTS) {
            float slots[SLOTS];
            factors.load(column, r, rank, 0.0f, slots);
            for (uint i = 0; i < SLOTS && r + i < rank; ++i) {
                for (uint j = 0; j < ROWS; ++j) {
                    sums[j] = fma(projected[j * rank + r + i], slots[i], sums[j]);
                }
            }
        }
        for (uint j = 0; j < ROWS && row + j < m; ++j) {
            finish(p, bias, y, row + j, column, 0.0f, sums[j]);
        }
    }
}
