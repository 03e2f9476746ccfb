// Layer normalisation, each row shared in the canonical row order.
//
// Rows of up to 32768 elements are kept in registers and read once, longer ones three times.

inline void add_slots(thread const float (&slots)[SLOTS], thread float (&accumulators)[SLOTS]) {
    for (uint i = 0; i < SLOTS; ++i) {
        accumulators[i] += slots[i];
    }
}

inline void add_squares(thread const float (&slots)[SLOTS], uint left, float mean, thread float (&accumulators)[SLOTS]) {
    for (uint i = 0; i < SLOTS; ++i) {
        const float deviation = slots[i] - mean;
        accumulators[i] = i < left ? fma(deviation, deviation, accumulators[i]) : accumulators[i];
    }
}

// Weight and bias.
template <typename W>
struct Affine {
    RowReader<W> weight;
    RowReader<W> bias;
    bool weighted;
    bool biased;

    void apply(ulong k, thread float (&slots)[SLOTS]) const {
        float w[SLOTS], b[SLOTS];
        if (weighted) {
            weight.load(k, 0.0f, w);
        }
        if (biased) {
            bias.load(k, 0.0f, b);
        }
        for (uint i = 0; i < SLOTS; ++i) {
            const float factor = weighted ? w[i] : 1.0f;
            slots[i] = biased ? fma(slots[i], factor, b[i]) : slots[i] * factor;
        }
    }
};

template <typename T, typename W>
inline void store_normalized(thread float (&slots)[SLOTS], ulong k, float mean, float scale, Affine<W> affine, RowWriter<T> to) {
    for (uint i = 0; i < SLOTS; ++i) {
        slots[i] = (slots[i] - mean) * scale;
    }
    affine.apply(k, slots);
    to.store(k, slots);
}

template <typename T, typename W>
[[kernel]] void layer_norm(
    device const T* x [[buffer(0)]],
    device const W* weight [[buffer(1)]],
    device const W* bias [[buffer(2)]],
    device T* y [[buffer(3)]],
    device float* means [[buffer(4)]],
    device float* inv_stds [[buffer(5)]],
    constant Params& params [[buffer(6)]],
    threadgroup float* partial [[threadgroup(0)]],
    uint group [[threadgroup_position_in_grid]],
    uint threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const RowThread t = row_thread(params.rows.length, group, threads, simdgroup, lane);
    const bool exists = t.row < params.rows.outer;
    const ulong n = exists ? params.rows.length : 0;
    const ulong start = t.row * params.rows.length;
    const RowReader<T> from(x + start, 1, n);
    const RowWriter<T> to(y + start, 1, n);
    const Affine<W> affine = {RowReader<W>(weight, 1, n), RowReader<W>(bias, 1, n), params.weighted != 0, params.biased != 0};
    const uint first = SLOTS * t.index, stride = SLOTS * t.count;

    float kept[KEPT][SLOTS];
    float slots[SLOTS];
    float sums[SLOTS] = {};
    for (uint v = 0; v < KEPT; ++v) {
        if (from.has(first + v * stride)) {
            from.load(first + v * stride, 0.0f, kept[v]);
            add_slots(kept[v], sums);
        }
    }
    for (ulong k = first + KEPT * stride; from.has(k); k += stride) {
        from.load(k, 0.0f, slots);
        add_slots(slots, sums);
    }
    const float mean = combine_row<Add>(sums, t, partial) / float(params.rows.length);

    float squares[SLOTS] = {};
    for (uint v = 0; v < KEPT; ++v) {
        if (from.has(first + v * stride)) {
            add_squares(kept[v], slots_left(first + v * stride, n), mean, squares);
        }
    }
    for (ulong k = first + KEPT * stride; from.has(k); k += stride) {
        from.load(k, 0.0f, slots);
        add_squares(slots, slots_left(k, n), mean, squares);
    }
    const float variance = combine_row<Add>(squares, t, partial + 32) / float(params.rows.length);
    const float scale = 1.0f / sqrt(variance + params.epsilon);

    for (uint v = 0; v < KEPT; ++v) {
        if (from.has(first + v * stride)) {
            store_normalized(kept[v], first + v * stride, mean, scale, affine, to);
        }
    }
    for (ulong k = first + KEPT * stride; from.has(k); k += stride) {
        from.load(k, 0.0f, slots);
        store_normalized(slots, k, mean, scale, affine, to);
    }
    if (params.statistics && exists && t.index == 0) {
        means[t.row] = mean;
        inv_stds[t.row] = scale;
    }
}
