// A tile's rows over all their blocks of keys, which are combined as they come.

// The queries are shared.
template <uint COLUMNS, uint CHUNKS, typename T, typename Q>
inline void walk(thread T& tile, device Q* y) {
    constexpr uint ROWS = T::HEIGHT;
    constant Params& p = tile.p;
    threadgroup Factors* factors = reinterpret_cast<threadgroup Factors*>(tile.ranges + ROWS);
    threadgroup float* scales = reinterpret_cast<threadgroup float*>(factors + ROWS);
    State state = {-INFINITY, 0.0f};
    float totals[CHUNKS][T::PASSES];
    for (uint i = 0; i < CHUNKS * T::PASSES; ++i) {
        totals[i / T::PASSES][i % T::PASSES] = 0.0f;
    }
    for (uint block = tile.first_block(); block < tile.last_block(); ++block) {
        tile.start_keys(block);
        tile.score(block);
        typename T::Values coming;
        tile.find_values(0, coming);
        tile.start_values(tile.group_of(block), coming);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (tile.simdgroup < ROWS) {
            tile.adjust(tile.simdgroup, block);
            const State next = tile.weigh(tile.simdgroup);
            const Factors f = Factors::of(state.greatest, next.greatest);
            state = {Greatest::apply(state.greatest, next.greatest), f.combine(state.sum, next.sum)};
            if (tile.lane == 0) {
                factors[tile.simdgroup] = f;
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
        for (uint chunk = 0; chunk < CHUNKS; ++chunk) {
            float sums[ROWS][COLUMNS];
            tile.sum_values(coming, tile.simdgroup, 0, sums);
            if (chunk + 1 < CHUNKS) {
                tile.find_values(chunk + 1, coming);
                tile.start_values(tile.group_of(block), coming);
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
    if (tile.simdgroup < ROWS && tile.lane == 0) {
        scales[tile.simdgroup] = state.greatest == -INFINITY ? 0.0f : 1.0f / state.sum;
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
