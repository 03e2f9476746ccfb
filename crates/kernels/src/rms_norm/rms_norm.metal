// RMS normalisation, each row shared in the canonical row order, alone or of a sum that is made and rounded on the way.
//
// Rows of up to 32768 elements are kept in registers and read once, longer ones twice. Beyond the end of a row stand zeros.

// Rows as they are.
template <typename T>
struct RowsOf {
    RowReader<T> x;

    void load(ulong k, thread float (&slots)[SLOTS]) const { x.load(k, 0.0f, slots); }
    void reload(ulong k, thread float (&slots)[SLOTS]) const { x.load(k, 0.0f, slots); }
};

// Rows of a + b, stored when they are first loaded.
template <typename T>
struct RowsOfSum {
    RowReader<T> a;
    RowReader<T> b;
    RowWriter<T> sum;

    void load(ulong k, thread float (&slots)[SLOTS]) const {
        float other[SLOTS];
        a.load(k, 0.0f, slots);
        b.load(k, 0.0f, other);
        for (uint i = 0; i < SLOTS; ++i) {
            slots[i] = widen(narrow<T>(slots[i] + other[i]));
        }
        sum.store(k, slots);
    }

    void reload(ulong k, thread float (&slots)[SLOTS]) const { RowReader<T>(sum.row, sum.stride, sum.n).load(k, 0.0f, slots); }
};

inline void add_squares(thread const float (&slots)[SLOTS], thread float (&accumulators)[SLOTS]) {
    for (uint i = 0; i < SLOTS; ++i) {
        accumulators[i] = fma(slots[i], slots[i], accumulators[i]);
    }
}

template <typename T, typename W>
inline void store_scaled(thread float (&slots)[SLOTS], ulong k, float scale, RowReader<W> weight, bool weighted, RowWriter<T> to) {
    float weights[SLOTS];
    if (weighted) {
        weight.load(k, 0.0f, weights);
    }
    for (uint i = 0; i < SLOTS; ++i) {
        const float value = slots[i] * scale;
        slots[i] = weighted ? value * weights[i] : value;
    }
    to.store(k, slots);
}

template <typename Source, typename T, typename W>
inline void rms_normalize(Source source, device const W* weight, RowWriter<T> to, constant Params& params, RowThread t, threadgroup float* partial) {
    const RowReader<W> weights(weight, 1, to.n);
    const bool weighted = params.weighted != 0;
    const uint first = SLOTS * t.index, stride = SLOTS * t.count;

    float kept[KEPT][SLOTS];
    float slots[SLOTS];
    float accumulators[SLOTS] = {};
    for (uint v = 0; v < KEPT; ++v) {
        if (to.has(first + v * stride)) {
            source.load(first + v * stride, kept[v]);
            add_squares(kept[v], accumulators);
        }
    }
    for (ulong k = first + KEPT * stride; to.has(k); k += stride) {
        source.load(k, slots);
        add_squares(slots, accumulators);
    }
    const float mean = combine_row<Add>(accumulators, t, partial) / float(params.rows.length);
    const float scale = 1.0f / sqrt(mean + params.epsilon);

    for (uint v = 0; v < KEPT; ++v) {
        if (to.has(first + v * stride)) {
            store_scaled(kept[v], first + v * stride, scale, weights, weighted, to);
        }
    }
    for (ulong k = first + KEPT * stride; to.has(k); k += stride) {
        source.reload(k, slots);
        store_scaled(slots, k, scale, weights, weighted, to);
    }
}

template <typename T, typename W>
[[kernel]] void rms_norm(
    device const T* x [[buffer(0)]],
    device const W* weight [[buffer(1)]],
    device T* y [[buffer(2)]],
    constant Params& params [[buffer(3)]],
    threadgroup float* partial [[threadgroup(0)]],
    uint group [[threadgroup_position_in_grid]],
    uint threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const RowThread t = row_thread(params.rows.length, group, threads, simdgroup, lane);
    const ulong n = t.row < params.rows.outer ? params.rows.length : 0;
    const ulong start = t.row * params.rows.length;
    const RowsOf<T> source = {RowReader<T>(x + start, 1, n)};
    rms_normalize(source, weight, RowWriter<T>(y + start, 1, n), params, t, partial);
}

template <typename T, typename W>
[[kernel]] void add_rms_norm(
    device const T* a [[buffer(0)]],
    device const T* b [[buffer(1)]],
    device const W* weight [[buffer(2)]],
    device T* sum [[buffer(3)]],
    device T* y [[buffer(4)]],
    constant Params& params [[buffer(5)]],
    threadgroup float* partial [[threadgroup(0)]],
    uint group [[threadgroup_position_in_grid]],
    uint threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const RowThread t = row_thread(params.rows.length, group, threads, simdgroup, lane);
    const ulong n = t.row < params.rows.outer ? params.rows.length : 0;
    const ulong start = t.row * params.rows.length;
    const RowsOfSum<T> source = {RowReader<T>(a + start, 1, n), RowReader<T>(b + start, 1, n), RowWriter<T>(sum + start, 1, n)};
    rms_normalize(source, weight, RowWriter<T>(y + start, 1, n), params, t, partial);
}
