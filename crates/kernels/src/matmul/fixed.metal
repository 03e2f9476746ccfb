// Strict products of 16-bit operands, of more than a few rows or with a b of any strides. Memory: each operand is read once for every block of the other,
// through the caches. Order: dot/block.metal.

template <typename A, typename B, typename C, typename Y>
[[kernel, max_total_threads_per_threadgroup(256)]] void matmul_fixed(
    device const A* a [[buffer(0)]],
    device const B* b [[buffer(1)]],
    device const C* bias [[buffer(2)]],
    device Y* y [[buffer(3)]],
    constant Params& p [[buffer(4)]],
    threadgroup float4* shared [[threadgroup(0)]],
    uint index [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    FixedBlock block(lane, simdgroup);
    const Place place(p, index, FixedBlock::EDGE, FixedBlock::EDGE);
    const uint m = uint(p.m), n = uint(p.n);
    block.products(lines(p, p.a, a, place.batch, place.row, m), lines(p, p.b, b, place.batch, place.column, n), uint(p.k), shared);
    for (uint i = 0; i < FixedBlock::RESULTS; ++i) {
        const uint row = place.row + block.row(i), column = place.column + block.column(i);
        if (row < m && column < n) {
            finish(p, bias, y, place, row, column, block.sums[i]);
        }
    }
}
