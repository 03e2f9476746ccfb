// The gradients of rms_norm and layer_norm by their rows. Rows of up to 32768 elements are kept in registers, and x and the gradient of the output are read
// once; of others they are read once from memory, then from the caches. An addend is read once.

// A row minus its mean, and its gradient times the weight.
template <typename T, typename W>
struct NormRow {
    RowReader<T> x;
    RowReader<T> dy;
    RowReader<W> weight;
    bool weighted;
    float mean;

    void load_centred(ulong k, thread float (&slots)[SLOTS]) const {
        x.load(k, mean, slots);
        for (uint i = 0; i < SLOTS; ++i) {
            slots[i] -= mean;
        }
    }

    void load_gradient(ulong k, thread float (&slots)[SLOTS]) const {
        dy.load(k, 0.0f, slots);
        if (weighted) {
            float factors[SLOTS];
            weight.load(k, 0.0f, factors);
            for (uint i = 0; i < SLOTS; ++i) {
                slots[i] *= factors[i];
            }
        }
    }
};

inline void clear(thread float (&accumulators)[SLOTS]) {
    for (uint i = 0; i < SLOTS; ++i) {
        accumulators[i] = Add::identity;
    }
}

// What a row's gradient is made of.
struct NormSums {
    float mean;
    float inverse;
    float shift;
    float slope;

    template <uint CENTRED>
    void apply(thread const float (&centred)[SLOTS], thread float (&gradients)[SLOTS]) const {
        for (uint i = 0; i < SLOTS; ++i) {
            const float normalised = centred[i] * inverse;
            gradients[i] = ((CENTRED ? gradients[i] - shift : gradients[i]) - normalised * slope) * inverse;
        }
    }
};

template <typename T>
inline void add_rounded(thread const float (&sums)[SLOTS], thread float (&gradients)[SLOTS]) {
    for (uint i = 0; i < SLOTS; ++i) {
        gradients[i] = sums[i] + widen(narrow<T>(gradients[i]));
    }
}

// A row in registers.
template <typename T, typename W, uint VISITS, uint COUNT>
struct KeptNormRow {
    typedef RowShare<T, VISITS, COUNT> Share;

    Share share;
    typename Share::template Kept<T> x;
    typename Share::template Kept<T> dy;
    device const W* weight;
    bool weighted;

    KeptNormRow(Share share, device const T* x_row, device const T* dy_row, device const W* weight, bool weighted)
        : share(share), weight(weight), weighted(weighted) {
        share.template load_once<WORDS>(x_row, 0.0f, x);
        share.template load_once<WORDS>(dy_row, 0.0f, dy);
    }

    void load_centred(uint v, float mean, thread float (&slots)[SLOTS]) const {
        x.widen_visit(v, slots);
        for (uint i = 0; i < SLOTS; ++i) {
            slots[i] = i < share.left(v) ? slots[i] - mean : 0.0f;
        }
    }

    void load_gradient(uint v, thread float (&slots)[SLOTS]) const {
        dy.widen_visit(v, slots);
        if (weighted) {
            float factors[SLOTS];
            share.load_visit(weight, v, factors);
            for (uint i = 0; i < SLOTS; ++i) {
                slots[i] = i < share.left(v) ? slots[i] * factors[i] : 0.0f;
            }
        }
    }

    template <uint CENTRED>
    NormSums sums(float epsilon, threadgroup float* partial) const {
        const float count = float(share.n);
        float slots[SLOTS], gradients[SLOTS];
        float a[SLOTS], b[SLOTS];
        NormSums found = {0.0f, 0.0f, 0.0f, 0.0f};
        if (CENTRED) {
            clear(a);
            clear(b);
#pragma unroll
            for (uint v = 0; v < VISITS; ++v) {
                if (share.has(v)) {
                    x.widen_visit(v, slots);
                    load_gradient(v, gradients);
                    for (uint i = 0; i < SLOTS; ++i) {
                        a[i] += slots[i];
                        b[i] += gradients[i];
                    }
                }
            }
            found.mean = share.template combine<Add>(a, partial) / count;
            found.shift = share.template combine<Add>(b, partial + 32) / count;
        }
        clear(a);
        clear(b);
#pragma unroll
        for (uint v = 0; v < VISITS; ++v) {
            if (share.has(v)) {
                load_centred(v, found.mean, slots);
                load_gradient(v, gradients);
                for (uint i = 0; i < SLOTS; ++i) {
                    a[i] = fma(slots[i], slots[i], a[i]);
                    b[i] = fma(gradients[i], slots[i], b[i]);
                }
            }
        }
        found.inverse = 1.0f / sqrt(share.template combine<Add>(a, partial + 64) / count + epsilon);
        found.slope = share.template combine<Add>(b, partial + 96) * found.inverse / count;
        return found;
    }

    template <uint CENTRED>
    void store(NormSums sums, device const T* addend, device T* dx) const {
        float slots[SLOTS], gradients[SLOTS];
#pragma unroll
        for (uint v = 0; v < VISITS; ++v) {
            if (share.has(v)) {
                load_centred(v, sums.mean, slots);
                load_gradient(v, gradients);
                sums.template apply<CENTRED>(slots, gradients);
                if (addend) {
                    share.load_visit(addend, v, slots);
                    add_rounded<T>(slots, gradients);
                }
                share.store(dx, v, gradients);
            }
        }
    }
};

template <uint CENTRED, typename T, typename W>
inline NormSums sums_of(thread NormRow<T, W>& row, float epsilon, RowThread t, threadgroup float* partial) {
    const ulong first = SLOTS * t.index, stride = SLOTS * t.count;
    const float count = float(row.x.n);
    float centred[SLOTS], gradients[SLOTS];
    float accumulators[SLOTS];
    NormSums found = {0.0f, 0.0f, 0.0f, 0.0f};
    if (CENTRED) {
        clear(accumulators);
        for (ulong k = first; row.x.has(k); k += stride) {
            row.x.load(k, 0.0f, centred);
            for (uint i = 0; i < SLOTS; ++i) {
                accumulators[i] += centred[i];
            }
        }
        row.mean = found.mean = combine_row<Add>(accumulators, t, partial) / count;
    }
    clear(accumulators);
    for (ulong k = first; row.x.has(k); k += stride) {
        row.load_centred(k, centred);
        for (uint i = 0; i < SLOTS; ++i) {
            accumulators[i] = fma(centred[i], centred[i], accumulators[i]);
        }
    }
    found.inverse = 1.0f / sqrt(combine_row<Add>(accumulators, t, partial + 32) / count + epsilon);
    if (CENTRED) {
        clear(accumulators);
        for (ulong k = first; row.x.has(k); k += stride) {
            row.load_gradient(k, gradients);
            for (uint i = 0; i < SLOTS; ++i) {
                accumulators[i] += gradients[i];
            }
        }
        found.shift = combine_row<Add>(accumulators, t, partial + 64) / count;
    }
    clear(accumulators);
    for (ulong k = first; row.x.has(k); k += stride) {
        row.load_centred(k, centred);
        row.load_gradient(k, gradients);
        for (uint i = 0; i < SLOTS; ++i) {
            accumulators[i] = fma(gradients[i], centred[i], accumulators[i]);
        }
    }
    found.slope = combine_row<Add>(accumulators, t, partial + 96) * found.inverse / count;
    return found;
}

template <typename T, typename W, uint CENTRED, uint VISITS, uint COUNT, uint THREADS>
[[kernel, max_total_threads_per_threadgroup(THREADS)]] void norm_gradient(
    device const T* x [[buffer(0)]],
    device const W* weight [[buffer(1)]],
    device const T* dy [[buffer(2)]],
    device const T* addend [[buffer(3)]],
    device T* dx [[buffer(4)]],
    device float* scale [[buffer(5)]],
    device float* mean [[buffer(6)]],
    constant Params& params [[buffer(7)]],
    threadgroup float* partial [[threadgroup(0)]],
    uint group [[threadgroup_position_in_grid]],
    uint threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const RowThread t = row_thread<COUNT>(params.rows.length, group, threads, simdgroup, lane);
    const bool exists = t.row < params.rows.outer;
    const ulong n = exists ? params.rows.length : 0, start = exists ? row_start<VISITS>(t, params.rows.length) : 0;
    device const T* added = params.added != 0 ? addend + start : nullptr;
    NormSums sums;
    if (VISITS > 0) {
        if (VISITS > 1 && !exists) {
            return;
        }
        const bool wide = is_wide(x) & is_wide(weight) & is_wide(dy) & is_wide(addend) & is_wide(dx);
        const RowShare<T, VISITS, COUNT> share(t, uint(n), wide);
        const KeptNormRow<T, W, VISITS, COUNT> row(share, x + start, dy + start, weight, params.weighted != 0);
        sums = row.template sums<CENTRED>(params.epsilon, partial);
        row.template store<CENTRED>(sums, added, dx + start);
    } else {
        NormRow<T, W> row = {RowReader<T>(x + start, 1, n), RowReader<T>(dy + start, 1, n), RowReader<W>(weight, 1, n), params.weighted != 0, 0.0f};
        sums = sums_of<CENTRED>(row, params.epsilon, t, partial);
        const RowWriter<T> to(dx + start, 1, n);
        const RowReader<T> addends(added ? added : x, 1, n);
        float slots[SLOTS], gradients[SLOTS];
        for (ulong k = SLOTS * t.index; row.x.has(k); k += SLOTS * t.count) {
            row.load_centred(k, slots);
            row.load_gradient(k, gradients);
            sums.template apply<CENTRED>(slots, gradients);
            if (added) {
                addends.load(k, 0.0f, slots);
                add_rounded<T>(slots, gradients);
            }
            to.store(k, gradients);
        }
    }
    if (exists && t.index == 0) {
        scale[t.row] = sums.inverse;
        if (CENTRED) {
            mean[t.row] = sums.mean;
        }
    }
}
