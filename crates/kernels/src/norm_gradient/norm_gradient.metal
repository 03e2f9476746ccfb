// The gradients of rms_norm and layer_norm by their rows: x and the gradient of the output are read once from memory, then from the caches; an addend once.

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

template <typename T, typename W, uint CENTRED, uint VISITS, uint COUNT>
[[kernel]] void norm_gradient(
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
    const ulong length = params.rows.length;
    const RowThread t = row_thread<COUNT>(length, group, threads, simdgroup, lane);
    const bool exists = t.row < params.rows.outer;
    const ulong n = exists ? length : 0, start = exists ? t.row * length : 0;
    const float count = float(length);
    NormRow<T, W> row = {RowReader<T>(x + start, 1, n), RowReader<T>(dy + start, 1, n), RowReader<W>(weight, 1, n), params.weighted != 0, 0.0f};
    const ulong first = SLOTS * t.index, stride = SLOTS * t.count;
    float centred[SLOTS], gradients[SLOTS];
    float accumulators[SLOTS];

    if (CENTRED) {
        clear(accumulators);
        for (ulong k = first; row.x.has(k); k += stride) {
            row.x.load(k, 0.0f, centred);
            for (uint i = 0; i < SLOTS; ++i) {
                accumulators[i] += centred[i];
            }
        }
        row.mean = combine_row<Add>(accumulators, t, partial) / count;
    }
    clear(accumulators);
    for (ulong k = first; row.x.has(k); k += stride) {
        row.load_centred(k, centred);
        for (uint i = 0; i < SLOTS; ++i) {
            accumulators[i] = fma(centred[i], centred[i], accumulators[i]);
        }
    }
    const float inverse = 1.0f / sqrt(combine_row<Add>(accumulators, t, partial + 32) / count + params.epsilon);
    float shift = 0.0f;
    if (CENTRED) {
        clear(accumulators);
        for (ulong k = first; row.x.has(k); k += stride) {
            row.load_gradient(k, gradients);
            for (uint i = 0; i < SLOTS; ++i) {
                accumulators[i] += gradients[i];
            }
        }
        shift = combine_row<Add>(accumulators, t, partial + 64) / count;
    }
    clear(accumulators);
    for (ulong k = first; row.x.has(k); k += stride) {
        row.load_centred(k, centred);
        row.load_gradient(k, gradients);
        for (uint i = 0; i < SLOTS; ++i) {
            accumulators[i] = fma(gradients[i], centred[i], accumulators[i]);
        }
    }
    const float slope = combine_row<Add>(accumulators, t, partial + 96) * inverse / count;
    if (!exists) {
        return;
    }
    if (t.index == 0) {
        scale[t.row] = inverse;
        if (CENTRED) {
            mean[t.row] = row.mean;
        }
    }
    const RowWriter<T> to(dx + start, 1, n);
    const RowReader<T> added(params.added != 0 ? addend + start : x + start, 1, n);
    for (ulong k = first; row.x.has(k); k += stride) {
        row.load_centred(k, centred);
        row.load_gradient(k, gradients);
        for (uint i = 0; i < SLOTS; ++i) {
            const float normalised = centred[i] * inverse;
            gradients[i] = ((CENTRED ? gradients[i] - shift : gradients[i]) - normalised * slope) * inverse;
        }
        if (params.added != 0) {
            float sums[SLOTS];
            added.load(k, 0.0f, sums);
            for (uint i = 0; i < SLOTS; ++i) {
                gradients[i] = sums[i] + widen(narrow<T>(gradients[i]));
            }
        }
        to.store(k, gradients);
    }
}
