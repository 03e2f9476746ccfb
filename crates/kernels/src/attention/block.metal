// What a block of keys gives a tile's rows: their sums and states.

// For combine.metal to put together in order.
struct Left {
    device float* sums;
    device float* states;
    uint blocks;
    uint block;

    template <typename T>
    ulong place(thread const T& tile, uint row) const { return tile.place(row) * blocks + block; }

    template <typename T>
    void keep_state(thread const T& tile, uint row, State state) const {
        states[2 * place(tile, row)] = state.greatest;
        states[2 * place(tile, row) + 1] = state.sum;
    }

    template <typename T>
    void keep_sum(thread const T& tile, uint row, uint column, float sum) const { sums[place(tile, row) * uint(tile.p.value_width) + column] = sum; }
};

// Of the only block: what combine.metal would make of it.
template <typename Q>
struct Whole {
    device Q* y;
    threadgroup float* scales;

    template <typename T>
    void keep_state(thread const T&, uint row, State state) const { scales[row] = state.greatest == -INFINITY ? 0.0f : 1.0f / state.sum; }

    template <typename T>
    void keep_sum(thread const T& tile, uint row, uint column, float sum) const {
        y[row_of(tile.p.y, tile.batch, tile.head(row), tile.query(row)) + column] = narrow<Q>(sum * scales[row]);
    }
};

// The block's first keys are in flight, and the queries are shared.
template <uint ROWS, uint COLUMNS, uint CHUNKS, typename T, typename L>
inline void sum_block(thread T& tile, uint block, L left) {
    const uint width = uint(tile.p.value_width);
    tile.score(block);
    typename T::Values coming;
    tile.start_values(block, 0, coming);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tile.simdgroup < ROWS) {
        const State state = tile.weigh(block);
        if (tile.lane == 0 && tile.exists(tile.simdgroup)) {
            left.keep_state(tile, tile.simdgroup, state);
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
                left.keep_sum(tile, r, column, sum);
            }
        }
    }
}
