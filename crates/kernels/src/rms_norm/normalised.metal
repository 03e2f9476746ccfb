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

// A row that a threadgroup normalises for itself. Its weight is in flight from the start; the row is read once the launches
// ahead have ended.
template <typename N>
struct NormalisedRow {
    uint n;
    // Threads beyond those that share a row share it once more.
    RowThread t;
    uint stride;
    bool is_weighted;
    Visits<N> norm;

    NormalisedRow(device const N* weight, uint n, bool is_weighted, uint threads, uint simdgroup, uint lane)
        : n(n), t(row_thread(n, 0, threads, simdgroup, lane)), stride(SLOTS * t.count), is_weighted(is_weighted),
          norm(RowReader<N>(weight, 1, is_weighted ? n : 0), SLOTS * t.index, SLOTS * t.count) {}

    // Where the elements of a visit are, and whether they are this thread's to store.
    uint place(uint visit) const { return SLOTS * t.index + visit * stride; }
    bool owns(uint visit) const { return t.row == 0 && place(visit) < n; }

    // The thread's elements, normalised; -0 beyond the row's end.
    void elements(device const float* x, float epsilon, threadgroup float* partial, thread float (&kept)[KEPT][SLOTS]) const {
        await_launches();
        float factors[KEPT][SLOTS];
        Visits<float>(RowReader<float>(x, 1, n), place(0), stride).elements(0.0f, kept);
        float accumulators[SLOTS] = {};
        add_squares(kept, accumulators);
        const float scale = norm_scale(accumulators, n, epsilon, t, partial);
        norm.elements(0.0f, factors);
        for (uint v = 0; v < KEPT; ++v) {
            for (uint i = 0; i < SLOTS; ++i) {
                const float value = kept[v][i] * scale;
                kept[v][i] = place(v) + i >= n ? -0.0f : is_weighted ? value * factors[v][i] : value;
            }
        }
    }
};
