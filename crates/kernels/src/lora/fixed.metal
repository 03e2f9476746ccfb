// y = round((x W^T + bias) + d), strict, for more than a few rows of 16-bit operands, with d = scale t B^T at hand. As matmul/fixed.metal.

template <typename X, typename W, typename C>
[[kernel, max_total_threads_per_threadgroup(256)]] void lora_fixed(
    device const X* x [[buffer(0)]],
    device const W* weight [[buffer(1)]],
    device const float* delta [[buffer(2)]],
    device const C* bias [[buffer(3)]],
    device X* y [[buffer(4)]],
    constant Params& p [[buffer(5)]],
    threadgroup float4* shared [[threadgroup(0)]],
    uint index [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    FixedBlock block(lane, simdgroup);
    const Place place(p, index, FixedBlock::EDGE, FixedBlock::EDGE);
    const uint m = uint(p.m), n = uint(p.n);
    block.products(row_major(x, p.k, place.row, m), row_major(weight, p.k, place.column, n), uint(p.k), shared);
    for (uint i = 0; i < FixedBlock::RESULTS; ++i) {
        const uint row = place.row + block.row(i), column = place.column + block.column(i);
        if (row < m && column < n) {
            finish(p, bias, y, row, column, block.sums[i], delta[row * p.n + column]);
        }
    }
}
