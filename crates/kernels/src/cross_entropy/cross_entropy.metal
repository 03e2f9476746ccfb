// The cross-entropy of logits and its gradient: a row is read twice, from the second time on from the caches, and once more for the gradient.

// What a row's exponentials are taken from and come to.
struct Exponentials {
    float max;
    float sum;
};

template <typename T>
inline Exponentials exponentials_of(RowReader<T> row, RowThread t, threadgroup float* partial) {
    const uint first = SLOTS * t.index, stride = SLOTS * t.count;
    float slots[SLOTS];
    float accumulators[SLOTS];
    for (uint i = 0; i < SLOTS; ++i) {
        accumulators[i] = Larger::identity;
    }
    for (ulong k = first; row.has(k); k += stride) {
        row.load(k, -INFINITY, slots);
        for (uint i = 0; i < SLOTS; ++i) {
            accumulators[i] = Larger::apply(accumulators[i], slots[i]);
        }
    }
    const float max = combine_row<Larger>(accumulators, t, partial);
    for (uint i = 0; i < SLOTS; ++i) {
        accumulators[i] = Add::identity;
    }
    for (ulong k = first; row.has(k); k += stride) {
        row.load(k, -INFINITY, slots);
        for (uint i = 0; i < SLOTS; ++i) {
            accumulators[i] += strict::exp_nonpositive(slots[i] - max);
        }
    }
    return {max, combine_row<Add>(accumulators, t, partial + 32)};
}

template <typename I>
struct Targets {
    Indices<I> indices;
    constant Params& params;

    bool ignores(ulong row) const { return params.ignores != 0 && long(indices.indices[row]) == params.ignored; }
};

template <typename T, typename I, uint VISITS, uint COUNT>
[[kernel]] void cross_entropy(
    device const T* logits [[buffer(0)]],
    device const I* targets [[buffer(1)]],
    device float* loss [[buffer(2)]],
    constant Params& params [[buffer(3)]],
    device atomic_uint* error_flag [[buffer(4)]],
    threadgroup float* partial [[threadgroup(0)]],
    uint group [[threadgroup_position_in_grid]],
    uint threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const ulong length = params.rows.length;
    const RowThread t = row_thread<COUNT>(length, group, threads, simdgroup, lane);
    const bool exists = t.row < params.rows.outer;
    device const T* row = logits + (exists ? t.row * length : 0);
    const Exponentials found = exponentials_of(RowReader<T>(row, 1, exists ? length : 0), t, partial);
    if (!exists || t.index != 0) {
        return;
    }
    const Targets<I> wanted = {{targets, error_flag}, params};
    if (wanted.ignores(t.row)) {
        loss[t.row] = 0.0f;
        return;
    }
    const ulong target = wanted.indices.resolve(t.row, length);
    if (target != OUTSIDE) {
        loss[t.row] = strict::log(found.sum) - (widen(row[target]) - found.max);
    }
}

template <typename T, typename I, uint VISITS, uint COUNT>
[[kernel]] void cross_entropy_gradient(
    device const T* logits [[buffer(0)]],
    device const I* targets [[buffer(1)]],
    device const float* dloss [[buffer(2)]],
    device T* dlogits [[buffer(3)]],
    device float* loss [[buffer(4)]],
    constant Params& params [[buffer(5)]],
    device atomic_uint* error_flag [[buffer(6)]],
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
    const RowReader<T> row(logits + start, 1, n);
    const Exponentials found = exponentials_of(row, t, partial);
    if (!exists) {
        return;
    }
    const Targets<I> wanted = {{targets, error_flag}, params};
    const bool ignored = wanted.ignores(t.row);
    const ulong target = ignored ? OUTSIDE : wanted.indices.resolve(t.row, length);
    if (params.with_loss != 0 && t.index == 0 && (ignored || target != OUTSIDE)) {
        loss[t.row] = ignored ? 0.0f : strict::log(found.sum) - (widen(logits[start + target]) - found.max);
    }
    const float scale = 1.0f / found.sum, upstream = dloss[t.row];
    const RowWriter<T> out(dlogits + start, 1, n);
    float slots[SLOTS];
    for (ulong k = SLOTS * t.index; row.has(k); k += SLOTS * t.count) {
        row.load(k, -INFINITY, slots);
        for (uint i = 0; i < SLOTS; ++i) {
            const float p = strict::exp_nonpositive(slots[i] - found.max) * scale;
            slots[i] = ignored ? 0.0f : (k + i == target ? p - 1.0f : p) * upstream;
        }
        out.store(k, slots);
    }
}
