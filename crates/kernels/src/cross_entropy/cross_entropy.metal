// The cross-entropy of logits and its gradient: a row is read twice, from the second time on from the caches where they hold the rows under way, and once
// more for the gradient; with the loss's statistics, only then.

// What a row's exponentials are taken from and come to.
struct Exponentials {
    float max;
    float sum;
};

struct Accumulators {
    float at[SLOTS];

    Accumulators(float identity) {
        for (uint i = 0; i < SLOTS; ++i) {
            at[i] = identity;
        }
    }
};

struct LargestLogit {
    Accumulators largest;

    void take(ulong, thread float (&slots)[SLOTS]) {
        for (uint i = 0; i < SLOTS; ++i) {
            largest.at[i] = Larger::apply(largest.at[i], slots[i]);
        }
    }
};

struct SumOfExponentials {
    float max;
    Accumulators sums;

    void take(ulong, thread float (&slots)[SLOTS]) {
        for (uint i = 0; i < SLOTS; ++i) {
            sums.at[i] += strict::exp_nonpositive(slots[i] - max);
        }
    }
};

template <typename T>
struct Slopes {
    RowWriter<T> to;
    Exponentials of;
    float scale;
    float upstream;
    ulong target;

    void take(ulong k, thread float (&slots)[SLOTS]) {
        for (uint i = 0; i < SLOTS; ++i) {
            slots[i] = strict::exp_nonpositive(slots[i] - of.max) * scale;
        }
        if (target - k < SLOTS) {
            for (uint i = 0; i < SLOTS; ++i) {
                slots[i] = k + i == target ? slots[i] - 1.0f : slots[i];
            }
        }
        for (uint i = 0; i < SLOTS; ++i) {
            slots[i] *= upstream;
        }
        to.store(k, slots);
    }
};

// Gives a thread's share of a row, in order; several visits that are there in full are in flight at once.
template <typename T, typename Taker>
inline void each_visit(RowReader<T> row, RowThread t, thread Taker& taker) {
    constexpr uint AHEAD = 8 / sizeof(T);
    const ulong stride = SLOTS * t.count;
    ulong k = SLOTS * t.index;
    float slots[SLOTS];
    for (; row.wide && k + (AHEAD - 1) * stride + SLOTS <= row.n; k += AHEAD * stride) {
        Words<T> words[AHEAD];
#pragma unroll
        for (uint a = 0; a < AHEAD; ++a) {
            words[a] = load_words(row.row + (k + a * stride));
        }
#pragma unroll
        for (uint a = 0; a < AHEAD; ++a) {
            widen(words[a], slots);
            taker.take(k + a * stride, slots);
        }
    }
    for (; row.has(k); k += stride) {
        row.load(k, -INFINITY, slots);
        taker.take(k, slots);
    }
}

template <typename T>
inline Exponentials exponentials_of(RowReader<T> row, RowThread t, threadgroup float* partial) {
    LargestLogit largest = {Accumulators(Larger::identity)};
    each_visit(row, t, largest);
    SumOfExponentials sum = {combine_row<Larger>(largest.largest.at, t, partial), Accumulators(Add::identity)};
    each_visit(row, t, sum);
    return {sum.max, combine_row<Add>(sum.sums.at, t, partial + 32)};
}

template <typename I>
struct Targets {
    Indices<I> indices;
    constant Params& params;

    bool ignores(ulong row) const { return params.ignores != 0 && long(indices.indices[row]) == params.ignored; }
};

template <typename T, typename I, uint VISITS, uint COUNT, uint THREADS>
[[kernel, max_total_threads_per_threadgroup(THREADS)]] void cross_entropy(
    device const T* logits [[buffer(0)]],
    device const I* targets [[buffer(1)]],
    device float* loss [[buffer(2)]],
    device float* max [[buffer(3)]],
    device float* sum [[buffer(4)]],
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
    device const T* row = logits + (exists ? t.row * length : 0);
    const Exponentials found = exponentials_of(RowReader<T>(row, 1, exists ? length : 0), t, partial);
    if (!exists || t.index != 0) {
        return;
    }
    if (params.statistics != 0) {
        max[t.row] = found.max;
        sum[t.row] = found.sum;
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

template <typename T, typename I, uint VISITS, uint COUNT, uint THREADS>
[[kernel, max_total_threads_per_threadgroup(THREADS)]] void cross_entropy_gradient(
    device const T* logits [[buffer(0)]],
    device const I* targets [[buffer(1)]],
    device const float* dloss [[buffer(2)]],
    device const float* max [[buffer(3)]],
    device const float* sum [[buffer(4)]],
    device T* dlogits [[buffer(5)]],
    device float* loss [[buffer(6)]],
    constant Params& params [[buffer(7)]],
    device atomic_uint* error_flag [[buffer(8)]],
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
    Exponentials found;
    if (params.statistics != 0) {
        found = {exists ? max[t.row] : 0.0f, exists ? sum[t.row] : 0.0f};
    } else {
        found = exponentials_of(row, t, partial);
    }
    if (!exists) {
        return;
    }
    const Targets<I> wanted = {{targets, error_flag}, params};
    const bool ignored = wanted.ignores(t.row);
    const ulong target = ignored ? OUTSIDE : wanted.indices.resolve(t.row, length);
    if (params.with_loss != 0 && t.index == 0 && (ignored || target != OUTSIDE)) {
        loss[t.row] = ignored ? 0.0f : strict::log(found.sum) - (widen(logits[start + target]) - found.max);
    }
    const RowWriter<T> to(dlogits + start, 1, n);
    if (ignored) {
        const float zeros[SLOTS] = {};
        for (ulong k = SLOTS * t.index; to.has(k); k += SLOTS * t.count) {
            to.store(k, zeros);
        }
        return;
    }
    Slopes<T> slopes = {to, found, 1.0f / found.sum, dloss[t.row], target};
    each_visit(row, t, slopes);
}
