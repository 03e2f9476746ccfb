// Layer normalisation, each row shared in the canonical row order.
//
// Rows of up to 32768 elements are kept in registers and read once, others three times.

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

// What becomes of a row besides the normalised elements.
struct Statistics {
    float mean;
    float scale;
};

// Weight and bias.
template <typename W>
struct Affine {
    device const W* weight;
    device const W* bias;
    bool weighted;
    bool biased;

    void load(ulong k, ulong n, thread float (&w)[SLOTS], thread float (&b)[SLOTS]) const {
        if (weighted) {
            RowReader<W>(weight, 1, n).load(k, 0.0f, w);
        }
        if (biased) {
            RowReader<W>(bias, 1, n).load(k, 0.0f, b);
        }
    }

    template <typename T, uint VISITS, uint COUNT>
    void load(RowShare<T, VISITS, COUNT> share, uint v, thread float (&w)[SLOTS], thread float (&b)[SLOTS]) const {
        if (weighted) {
            share.load_visit(weight, v, w);
        }
        if (biased) {
            share.load_visit(bias, v, b);
        }
    }

    void apply(thread float (&slots)[SLOTS], Statistics of, thread const float (&w)[SLOTS], thread const float (&b)[SLOTS]) const {
        for (uint i = 0; i < SLOTS; ++i) {
            const float normalized = (slots[i] - of.mean) * of.scale, factor = weighted ? w[i] : 1.0f;
            slots[i] = biased ? fma(normalized, factor, b[i]) : normalized * factor;
        }
    }
};

inline Statistics statistics_of(float mean, float squares, float n, constant Params& params) {
    return {mean, 1.0f / sqrt(squares / n + params.epsilon)};
}

// Weight and bias of a thread's share of a row, brought at once or, where registers are scarce, when they are needed.
template <typename T, typename W, uint VISITS, uint COUNT, uint AT_ONCE>
struct KeptAffine {
    Affine<W> affine;

    KeptAffine(Affine<W> affine, RowShare<T, VISITS, COUNT>) : affine(affine) {}

    void load(RowShare<T, VISITS, COUNT> share, uint v, thread float (&w)[SLOTS], thread float (&b)[SLOTS]) const { affine.load(share, v, w, b); }
};

template <typename T, typename W, uint VISITS, uint COUNT>
struct KeptAffine<T, W, VISITS, COUNT, 1> {
    typename RowShare<T, VISITS, COUNT>::template Kept<W> weight;
    typename RowShare<T, VISITS, COUNT>::template Kept<W> bias;

    KeptAffine(Affine<W> affine, RowShare<T, VISITS, COUNT> share) {
        if (affine.weighted) {
            share.load(affine.weight, 0.0f, weight);
        }
        if (affine.biased) {
            share.load(affine.bias, 0.0f, bias);
        }
    }

    void load(RowShare<T, VISITS, COUNT>, uint v, thread float (&w)[SLOTS], thread float (&b)[SLOTS]) const {
        weight.widen_visit(v, w);
        bias.widen_visit(v, b);
    }
};

// A row that is kept in registers.
template <typename T, typename W, uint VISITS, uint COUNT, uint AT_ONCE>
inline Statistics normalize_kept(thread const typename RowShare<T, VISITS, COUNT>::template Kept<T>& kept, device T* to, RowShare<T, VISITS, COUNT> share,
                                 thread const KeptAffine<T, W, VISITS, COUNT, AT_ONCE>& factors, Affine<W> affine, constant Params& params,
                                 threadgroup float* partial) {
    const float n = float(share.n);
    float slots[SLOTS], w[SLOTS], b[SLOTS];
    float sums[SLOTS] = {}, squares[SLOTS] = {};
    for (uint v = 0; v < VISITS; ++v) {
        if (share.has(v)) {
            kept.widen_visit(v, slots);
            add_slots(slots, sums);
        }
    }
    const float mean = share.template combine<Add>(sums, partial) / n;
    for (uint v = 0; v < VISITS; ++v) {
        if (share.has(v)) {
            kept.widen_visit(v, slots);
            add_squares(slots, share.left(v), mean, squares);
        }
    }
    const Statistics statistics = statistics_of(mean, share.template combine<Add>(squares, partial + 32), n, params);
    for (uint v = 0; v < VISITS; ++v) {
        if (share.has(v)) {
            kept.widen_visit(v, slots);
            factors.load(share, v, w, b);
            affine.apply(slots, statistics, w, b);
            share.store(to, v, slots);
        }
    }
    return statistics;
}

template <typename T, typename W>
inline Statistics normalize(device const T* x, device T* y, ulong n, Affine<W> affine, constant Params& params, RowThread t, threadgroup float* partial) {
    const RowReader<T> from(x, 1, n);
    const RowWriter<T> to(y, 1, n);
    const uint first = SLOTS * t.index, stride = SLOTS * t.count;

    float slots[SLOTS], w[SLOTS], b[SLOTS];
    float sums[SLOTS] = {}, squares[SLOTS] = {};
    for (ulong k = first; from.has(k); k += stride) {
        from.load(k, 0.0f, slots);
        add_slots(slots, sums);
    }
    const float mean = combine_row<Add>(sums, t, partial) / float(n);
    for (ulong k = first; from.has(k); k += stride) {
        from.load(k, 0.0f, slots);
        add_squares(slots, slots_left(k, n), mean, squares);
    }
    const Statistics statistics = statistics_of(mean, combine_row<Add>(squares, t, partial + 32), float(n), params);
    for (ulong k = first; from.has(k); k += stride) {
        from.load(k, 0.0f, slots);
        affine.load(k, n, w, b);
        affine.apply(slots, statistics, w, b);
        to.store(k, slots);
    }
    return statistics;
}

template <typename T, typename W, uint VISITS, uint COUNT, uint THREADS, uint AT_ONCE>
[[kernel, max_total_threads_per_threadgroup(THREADS)]] void layer_norm(
    device const T* x [[buffer(0)]],
    device const W* weight [[buffer(1)]],
    device const W* bias [[buffer(2)]],
    device T* y [[buffer(3)]],
    device float* mean [[buffer(4)]],
    device float* inv_std [[buffer(5)]],
    constant Params& params [[buffer(6)]],
    threadgroup float* partial [[threadgroup(0)]],
    uint group [[threadgroup_position_in_grid]],
    uint threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const RowThread t = row_thread<COUNT>(params.rows.length, group, threads, simdgroup, lane);
    const bool exists = t.row < params.rows.outer;
    const ulong n = exists ? params.rows.length : 0;
    const ulong start = row_start<VISITS>(t, params.rows.length);
    const Affine<W> affine = {weight, bias, params.weighted != 0, params.biased != 0};
    // Where registers are scarce, a second way beside this one would cost more of them than there are.
    const bool wide = is_wide(x) & is_wide(weight) & is_wide(bias) & is_wide(y);
    Statistics statistics;
    if (VISITS > 0 && (AT_ONCE || wide)) {
        if (VISITS > 1 && !exists) {
            return;
        }
        const RowShare<T, VISITS, COUNT> share(t, uint(n), !AT_ONCE || wide);
        typename RowShare<T, VISITS, COUNT>::template Kept<T> kept;
        // Halves would take longer BEFORE_RESULTS (measured on an H200).
        share.template load_once<sizeof(T) == 4 ? BEFORE_RESULTS : WORDS>(x + start, 0.0f, kept);
        const KeptAffine<T, W, VISITS, COUNT, AT_ONCE> factors(affine, share);
        statistics = normalize_kept(kept, y + start, share, factors, affine, params, partial);
    } else {
        statistics = normalize(x + start, y + start, n, affine, params, t, partial);
    }
    if (params.statistics && exists && t.index == 0) {
        mean[t.row] = statistics.mean;
        inv_std[t.row] = statistics.scale;
    }
}
