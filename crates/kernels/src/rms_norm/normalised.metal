// Adds the squares of a thread's visits to its accumulators.
inline void add_squares(thread const float (&kept)[KEPT][SLOTS], thread float (&accumulators)[SLOTS]) {
    for (uint v = 0; v < KEPT; ++v) {
        for (uint i = 0; i < SLOTS; ++i) {
            accumulators[i] = fma(kept[v][i], kept[v][i], accumulators[i]);
        }
    }
}

// What a row's elements are multiplied with, for every thread, in the order of rms_norm.metal, from the sums of squares. `partial` holds a float for each
// simdgroup.
inline float norm_scale(thread const float (&accumulators)[SLOTS], uint n, float epsilon, RowThread t, threadgroup float* partial) {
    return 1.0f / sqrt(combine_row<Add>(accumulators, t, partial) / float(n) + epsilon);
}

// Gives eight elements of a row, normalised, to `to`.
template <typename To>
inline void give_normalised(To to, uint k, uint n, float scale, thread float (&values)[SLOTS], thread const float (&weights)[SLOTS]) {
    for (uint i = 0; i < SLOTS; ++i) {
        values[i] = values[i] * scale * weights[i];
    }
    to.store(k, k < n, values);
}

// Stores a row that a threadgroup normalises, once the launches ahead have ended: eight elements of each thread at a time. The row is read twice, so that it takes
// few registers: for its sum, by the COUNT threads that share it (zero: as many as the order says), and a piece by each; the first AHEAD pieces are sent for with the
// elements of the sum, their weights before. `memory` holds a float for each simdgroup.
template <uint COUNT, uint AHEAD, typename Row, typename N, typename To>
inline void store_normalised(Row row, RowReader<N> factors, float epsilon, uint threads, uint simdgroup, uint lane, threadgroup float* memory, To to) {
    const uint n = uint(row.n), stride = SLOTS * threads;
    RowThread t = row_thread(n, 0, threads, simdgroup, lane);
    // Of more threads than share the row: row_thread of a COUNT knows none.
    if (COUNT > 0) {
        t = {(32 * simdgroup + lane) / COUNT, (32 * simdgroup + lane) % COUNT, COUNT, lane, simdgroup};
    }
    const uint k = SLOTS * (32 * simdgroup + lane);
    float values[AHEAD][SLOTS], weights[AHEAD][SLOTS], accumulators[SLOTS];
#pragma unroll
    for (uint v = 0; v < AHEAD; ++v) {
        factors.load_whole(k + v * stride, 1.0f, weights[v]);
    }
    await_row(row);
    bool is_missing;
    do {
#pragma unroll
        for (uint v = 0; v < AHEAD; ++v) {
            row.load_whole(k + v * stride, 0.0f, values[v]);
        }
        is_missing = lacks(row, values);
        for (uint i = 0; i < SLOTS; ++i) {
            accumulators[i] = 0.0f;
        }
        // A simdgroup that shares the row with none sums it for itself.
        if (t.count <= 32 || t.row == 0) {
            float kept[KEPT][SLOTS];
#pragma unroll
            for (uint v = 0; v < KEPT; ++v) {
                row.load_whole(SLOTS * (t.index + v * t.count), 0.0f, kept[v]);
            }
            is_missing = lacks(row, kept) || is_missing;
            add_squares(kept, accumulators);
        }
    } while (is_missing);
    const float scale = norm_scale(accumulators, n, epsilon, t, memory);
#pragma unroll
    for (uint v = 0; v < AHEAD; ++v) {
        if (v * stride < n) {
            keep(row, k + v * stride, values[v]);
            give_normalised(to, k + v * stride, n, scale, values[v], weights[v]);
        }
    }
    for (uint first = AHEAD * stride; first < n; first += stride) {
        do {
            row.load_whole(k + first, 0.0f, values[0]);
        } while (lacks(row, values));
        keep(row, k + first, values[0]);
        factors.load_whole(k + first, 1.0f, weights[0]);
        give_normalised(to, k + first, n, scale, values[0], weights[0]);
    }
}
