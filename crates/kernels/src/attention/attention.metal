// Attention of many queries: a threadgroup for each tile of rows walks over its blocks of keys and combines them as it goes. Keys and values are read once
// for each tile, queries once a block, and nothing else leaves the GPU's cores.

template <typename Q, typename KV, typename M, uint ROWS, uint LANES, uint COLUMNS, uint CHUNKS>
[[kernel, max_total_threads_per_threadgroup(512)]] void attention(
    device const Q* q [[buffer(0)]],
    device const KV* k [[buffer(1)]],
    device const KV* v [[buffer(2)]],
    device const M* mask [[buffer(3)]],
    device const int* positions [[buffer(4)]],
    device const int* lengths [[buffer(5)]],
    device Q* y [[buffer(6)]],
    constant Params& p [[buffer(7)]],
    threadgroup float* shared [[threadgroup(0)]],
    uint index [[threadgroup_position_in_grid]],
    uint count [[threadgroups_per_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    typedef Tile<Q, KV, M, ROWS, LANES, COLUMNS, CHUNKS> T;
    // The last queries may attend most keys: they begin.
    const uint turn = count - 1 - index, heads = uint(p.score.kv_heads * p.score.batch);
    T tile(p, q, k, v, mask, shared, lane, simdgroup, turn / heads, turn % heads);
    threadgroup Factors* factors = reinterpret_cast<threadgroup Factors*>(tile.ranges + ROWS);
    threadgroup float* scales = reinterpret_cast<threadgroup float*>(factors + ROWS);
    await_launches();
    tile.begin(positions, lengths);
    tile.share_queries();

    State state = {-INFINITY, 0.0f};
    float totals[CHUNKS][T::PASSES];
    for (uint i = 0; i < CHUNKS * T::PASSES; ++i) {
        totals[i / T::PASSES][i % T::PASSES] = 0.0f;
    }
    for (uint block = tile.first_block(); block < tile.last_block(); ++block) {
        tile.start_keys(block);
        tile.score(block);
        typename T::Values coming;
        tile.start_values(block, 0, coming);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (simdgroup < ROWS) {
            const State next = tile.weigh(block);
            const Factors f = Factors::of(state.greatest, next.greatest);
            state = {Greatest::apply(state.greatest, next.greatest), f.combine(state.sum, next.sum)};
            if (lane == 0) {
                factors[simdgroup] = f;
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
        for (uint chunk = 0; chunk < CHUNKS; ++chunk) {
            float sums[ROWS][COLUMNS];
            tile.sum_values(coming, sums);
            if (chunk + 1 < CHUNKS) {
                tile.start_values(block, chunk + 1, coming);
            }
#pragma unroll
            for (uint pass = 0; pass < T::PASSES; ++pass) {
                const float next = tile.meet(sums, pass);
                if (tile.meets()) {
                    const Factors f = factors[tile.meeting_row(pass)];
                    totals[chunk][pass] = f.combine(totals[chunk][pass], next);
                }
            }
        }
    }
    if (simdgroup < ROWS && lane == 0) {
        scales[simdgroup] = state.greatest == -INFINITY ? 0.0f : 1.0f / state.sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
    for (uint i = 0; i < CHUNKS * T::PASSES && tile.meets(); ++i) {
        const uint r = tile.meeting_row(i % T::PASSES), column = tile.meeting_column(i / T::PASSES);
        if (tile.exists(r) && column < uint(p.value_width)) {
            y[row_of(p.y, tile.batch, tile.head(r), tile.query(r)) + column] = narrow<Q>(totals[i / T::PASSES][i % T::PASSES] * scales[r]);
        }
    }
}
