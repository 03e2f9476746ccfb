// RMS normalisation, each row shared in the canonical row order, alone or of a sum that is made and rounded on the way.
//
// Rows of up to 32768 elements are kept in registers and read once, others twice. Beyond the end of a row stand zeros.

// Rows as they are.
template <typename T, uint VISITS, uint COUNT>
struct RowsOf {
    typedef typename RowShare<T, VISITS, COUNT>::template Kept<T> Kept;

    RowReader<T> x;

    void load(ulong k, thread float (&slots)[SLOTS]) const { x.load(k, 0.0f, slots); }
    void keep(RowShare<T, VISITS, COUNT> share, thread Kept& kept) const { share.template load_once<BEFORE_RESULTS>(x.row, 0.0f, kept); }
    void reload(ulong k, thread float (&slots)[SLOTS]) const { load(k, slots); }
};

// Rows of a + b, stored when they are first loaded.
template <typename T, uint VISITS, uint COUNT>
struct RowsOfSum {
    typedef typename RowShare<T, VISITS, COUNT>::template Kept<T> Kept;

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

    void keep(RowShare<T, VISITS, COUNT> share, thread Kept& kept) const {
        Kept others;
        share.load(a.row, 0.0f, kept);
        share.load(b.row, 0.0f, others);
        for (uint v = 0; v < VISITS; ++v) {
            if (share.has(v)) {
                float slots[SLOTS], other[SLOTS];
                kept.widen_visit(v, slots);
                others.widen_visit(v, other);
                for (uint i = 0; i < SLOTS; ++i) {
                    slots[i] += other[i];
                }
                share.store(sum.row, v, slots, kept);
            }
        }
    }

    void reload(ulong k, thread float (&slots)[SLOTS]) const { RowReader<T>(sum.row, sum.stride, sum.n).load(k, 0.0f, slots); }
};

inline void add_squares(thread const float (&slots)[SLOTS], thread float (&accumulators)[SLOTS]) {
    for (uint i = 0; i < SLOTS; ++i) {
        accumulators[i] = fma(slots[i], slots[i], accumulators[i]);
    }
}

inline void scale_slots(thread float (&slots)[SLOTS], float scale, thread const float (&weights)[SLOTS], bool weighted) {
    for (uint i = 0; i < SLOTS; ++i) {
        const float value = slots[i] * scale;
        slots[i] = weighted ? value * weights[i] : value;
    }
}

inline float rms_scale(float squares, float n, constant Params& params) {
    return 1.0f / sqrt(squares / n + params.epsilon);
}

// A row that is kept in registers; so are its weights, which are in flight meanwhile.
template <typename Source, typename T, typename W, typename Y, uint VISITS, uint COUNT>
inline void rms_normalize_kept(Source source, device const W* weight, device Y* to, RowShare<T, VISITS, COUNT> share, constant Params& params,
                               threadgroup float* partial) {
    const bool weighted = params.weighted != 0;
    typename Source::Kept kept;
    typename RowShare<T, VISITS, COUNT>::template Kept<W> weights;
    source.keep(share, kept);
    if (weighted) {
        share.load(weight, 0.0f, weights);
    }

    float slots[SLOTS], factors[SLOTS];
    float accumulators[SLOTS] = {};
    for (uint v = 0; v < VISITS; ++v) {
        if (share.has(v)) {
            kept.widen_visit(v, slots);
            add_squares(slots, accumulators);
        }
    }
    const float scale = rms_scale(share.template combine<Add>(accumulators, partial), float(share.n), params);
    for (uint v = 0; v < VISITS; ++v) {
        if (share.has(v)) {
            kept.widen_visit(v, slots);
            if (weighted) {
                weights.widen_visit(v, factors);
            }
            scale_slots(slots, scale, factors, weighted);
            share.store(to, v, slots);
        }
    }
}

template <typename Source, typename W, typename Y>
inline void rms_normalize(Source source, device const W* weight, RowWriter<Y> to, constant Params& params, RowThread t, threadgroup float* partial) {
    const RowReader<W> weights(weight, 1, to.n);
    const bool weighted = params.weighted != 0;
    const uint first = SLOTS * t.index, stride = SLOTS * t.count;

    float slots[SLOTS], factors[SLOTS];
    float accumulators[SLOTS] = {};
    for (ulong k = first; to.has(k); k += stride) {
        source.load(k, slots);
        add_squares(slots, accumulators);
    }
    const float scale = rms_scale(combine_row<Add>(accumulators, t, partial), float(to.n), params);
    for (ulong k = first; to.has(k); k += stride) {
        source.reload(k, slots);
        if (weighted) {
            weights.load(k, 0.0f, factors);
        }
        scale_slots(slots, scale, factors, weighted);
        to.store(k, slots);
    }
}

template <typename T, typename W, typename Y, uint VISITS, uint COUNT, uint THREADS>
[[kernel, max_total_threads_per_threadgroup(THREADS)]] void rms_norm(
    device const T* x [[buffer(0)]],
    device const W* weight [[buffer(1)]],
    device Y* y [[buffer(2)]],
    constant Params& params [[buffer(3)]],
    threadgroup float* partial [[threadgroup(0)]],
    uint group [[threadgroup_position_in_grid]],
    uint threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const RowThread t = row_thread<COUNT>(params.rows.length, group, threads, simdgroup, lane);
    const ulong n = t.row < params.rows.outer ? params.rows.length : 0;
    const ulong start = row_start<VISITS>(t, params.rows.length);
    const RowsOf<T, VISITS, COUNT> source = {RowReader<T>(x + start, 1, n)};
    if (VISITS > 0) {
        if (VISITS > 1 && n == 0) {
            return;
        }
        const RowShare<T, VISITS, COUNT> share(t, uint(n), is_wide(x) & is_wide(weight) & is_wide(y));
        rms_normalize_kept(source, weight, y + start, share, params, partial);
    } else {
        rms_normalize(source, weight, RowWriter<Y>(y + start, 1, n), params, t, partial);
    }
}

template <typename T, typename W, uint VISITS, uint COUNT, uint THREADS>
[[kernel, max_total_threads_per_threadgroup(THREADS)]] void add_rms_norm(
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
    const RowThread t = row_thread<COUNT>(params.rows.length, group, threads, simdgroup, lane);
    const ulong n = t.row < params.rows.outer ? params.rows.length : 0;
    const ulong start = row_start<VISITS>(t, params.rows.length);
    const RowsOfSum<T, VISITS, COUNT> source = {RowReader<T>(a + start, 1, n), RowReader<T>(b + start, 1, n), RowWriter<T>(sum + start, 1, n)};
    if (VISITS > 0) {
        if (VISITS > 1 && n == 0) {
            return;
        }
        const RowShare<T, VISITS, COUNT> share(t, uint(n), is_wide(a) & is_wide(b) & is_wide(weight) & is_wide(sum) & is_wide(y));
        rms_normalize_kept(source, weight, y + start, share, params, partial);
    } else {
        rms_normalize(source, weight, RowWriter<T>(y + start, 1, n), params, t, partial);
    }
}
