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

// For the threadgroups of a cluster, one for each block, to put together themselves: of each row its sums and its state.
template <typename T>
struct Shared {
    static constexpr constant uint ROW = T::PADDED + 2;
    threadgroup float* rows;

    threadgroup float* sum_at(uint row, uint column) const { return rows + row * ROW + column; }
    threadgroup float* state_at(uint row) const { return rows + row * ROW + ROW - 2; }

    void keep_state(thread const T&, uint row, State state) const {
        state_at(row)[0] = state.greatest;
        state_at(row)[1] = state.sum;
    }

    void keep_sum(thread const T&, uint row, uint column, float sum) const { *sum_at(row, column) = sum; }

    // What was left of a row and a column.
    struct Left {
        threadgroup const float* of_column;
        threadgroup const float* of_row;

        float sum(uint block) const { return load_from(block, of_column); }
        State state(uint block) const { return {load_from(block, of_row), load_from(block, of_row + 1)}; }
    };

    // The threadgroup's part of the results of all.
    template <typename Q>
    void combine(thread const T& tile, uint block, uint blocks, device Q* y) const {
        constant Params& p = tile.p;
        const uint width = uint(p.value_width);
        meet_cluster();
        for (uint i = block * THREADS + tile.thread_index(); i < T::HEIGHT * width; i += blocks * THREADS) {
            const uint r = i / width, column = i % width;
            if (tile.exists(r)) {
                const KeyRange range = tile.ranges[r];
                const float result = combine_few(Left{sum_at(r, column), state_at(r)}, range.start / BLOCK, range.is_empty() ? 0 : (range.end + BLOCK - 1) / BLOCK);
                y[row_of(p.y, tile.batch, tile.head(r), tile.query(r)) + column] = narrow<Q>(result);
            }
        }
        leave_cluster();
    }
};

// The block's first keys are in flight, and the queries are shared.
template <uint ROWS, uint COLUMNS, uint CHUNKS, typename T, typename L>
inline void sum_block(thread T& tile, uint block, L left) {
    const uint width = uint(tile.p.value_width);
    tile.score(block);
    typename T::Values coming;
    tile.find_values(0, coming);
    tile.start_values(tile.group_of(block), coming);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tile.simdgroup < ROWS) {
        tile.adjust(tile.simdgroup, block);
        const State state = tile.weigh(tile.simdgroup);
        if (tile.lane == 0 && tile.exists(tile.simdgroup)) {
            left.keep_state(tile, tile.simdgroup, state);
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
            const float sum = tile.meet(sums, pass);
            const uint r = tile.meeting_row(pass), column = tile.meeting_column(chunk);
            if (tile.meets() && tile.exists(r) && column < width) {
                left.keep_sum(tile, r, column, sum);
            }
        }
    }
}
