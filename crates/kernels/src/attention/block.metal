// What a block of keys gives a tile's rows: their sums and states, for combine.metal to put together in order.

// The block's first keys are in flight, and the queries are shared.
template <uint ROWS, uint COLUMNS, uint CHUNKS, typename T>
inline void sum_block(thread T& tile, uint block, uint blocks, device float* values, device float* states) {
    const uint width = uint(tile.p.value_width);
    tile.score(block);
    typename T::Values coming;
    tile.start_values(block, 0, coming);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tile.simdgroup < ROWS) {
        const State state = tile.weigh(block);
        if (tile.lane == 0 && tile.exists(tile.simdgroup)) {
            const ulong at = tile.place(tile.simdgroup) * blocks + block;
            states[2 * at] = state.greatest;
            states[2 * at + 1] = state.sum;
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
            const float sum = tile.meet(sums, pass);
            const uint r = tile.meeting_row(pass), column = tile.meeting_column(chunk);
            if (tile.meets() && tile.exists(r) && column < width) {
                values[(tile.place(r) * blocks + block) * width + column] = sum;
            }
        }
    }
}
