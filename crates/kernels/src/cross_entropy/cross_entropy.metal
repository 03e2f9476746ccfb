// The cross-entropy of logits and its gradient: a row is read once for the loss, and once for the gradient.

// What a row's exponentials are taken from and come to.
struct Exponentials {
    float max;
    float sum;
};

// How far a thread's logits may lie above its origin.
constant constexpr float SLACK = 4.0f;
// Scaled sums below this count as zero, so that no device meets subnormal numbers.
constant constexpr float NEGLIGIBLE = 0x1p-100f;

// A thread's sums of e^(x - origin), where the origin follows its largest logit.
struct SumsOfExponentials {
    float max;
    float origin;
    float at[SLOTS];

    SumsOfExponentials() : max(Larger::identity), origin(-FLT_MAX) {
        for (uint i = 0; i < SLOTS; ++i) {
            at[i] = Add::identity;
        }
    }

    void scale(float to) {
        const float factor = strict::exp_nonpositive(origin - to), least = factor < 1.0f ? NEGLIGIBLE : 0.0f;
        for (uint i = 0; i < SLOTS; ++i) {
            const float scaled = at[i] * factor;
            at[i] = scaled < least ? 0.0f : scaled;
        }
        origin = to;
    }

    void take(ulong, thread float (&slots)[SLOTS]) {
        for (uint i = 0; i < SLOTS; ++i) {
            max = Larger::apply(max, slots[i]);
        }
        if (max - origin > SLACK) {
            scale(max);
        }
        for (uint i = 0; i < SLOTS; ++i) {
            at[i] += strict::exp_nonpositive(slots[i] - origin);
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

// Gives a thread's share of a row, in order; AHEAD visits are in flight at once.
template <uint AHEAD, typename T, typename Taker>
inline void each_visit(RowReader<T> row, RowThread t, thread Taker& taker) {
    const ulong stride = SLOTS * t.count;
    ulong k = SLOTS * t.index;
    float slots[SLOTS];
    const ulong whole = row.wide ? row.n & ~ulong(SLOTS - 1) : 0;
    uint visits = k < whole ? uint((whole - k - 1) / stride) + 1 : 0;
    device const T* from = row.row + k;
    for (; visits > 0; visits -= min(visits, AHEAD)) {
        Words<T> words[AHEAD];
#pragma unroll
        for (uint a = 0; a < AHEAD; ++a) {
            if (a < visits) {
                words[a] = load_words(from + a * stride);
            }
        }
#pragma unroll
        for (uint a = 0; a < AHEAD; ++a) {
            if (a < visits) {
                widen(words[a], slots);
                taker.take(k, slots);
                k += stride;
            }
        }
        from += AHEAD * stride;
    }
    for (; row.has(k); k += stride) {
        row.load(k, -INFINITY, slots);
        taker.take(k, slots);
    }
}

template <typename T>
inline Exponentials exponentials_of(RowReader<T> row, RowThread t, threadgroup float* partial) {
    if (t.count <= 32 && row.n <= SLOTS * t.count) {
        float slots[SLOTS];
        row.load(SLOTS * t.index, -INFINITY, slots);
        const float max = combine_row<Larger>(slots, t, partial);
        for (uint i = 0; i < SLOTS; ++i) {
            slots[i] = strict::exp_nonpositive(slots[i] - max);
        }
        return {max, combine_row<Add>(slots, t, partial)};
    }
    SumsOfExponentials sums;
    each_visit<4>(row, t, sums);
    const float max = combine_threads<Larger>(sums.max, t, partial);
    sums.scale(max);
    return {max, combine_row<Add>(sums.at, t, partial + 32)};
}

template <typename I>
struct Targets {
    Indices<I> indices;
    constant Params& params;

    bool ignores(ulong row) const { return params.ignores != 0 && long(indices.indices[row]) == params.ignored; }
};

template <typename T, typename I, uint COUNT, uint THREADS>
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
    loss[t.row] = target == OUTSIDE ? NAN : strict::log(found.sum) - (widen(row[target]) - found.max);
}

// The rows' losses as one: their sum, or that divided by how many targets count. Of one threadgroup.
template <typename I, uint THREADS>
[[kernel, max_total_threads_per_threadgroup(THREADS)]] void cross_entropy_total(
    device const float* losses [[buffer(0)]],
    device const I* targets [[buffer(1)]],
    device float* loss [[buffer(2)]],
    constant Params& params [[buffer(3)]],
    threadgroup float* partial [[threadgroup(0)]],
    uint group [[threadgroup_position_in_grid]],
    uint threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const ulong rows = params.rows.outer;
    const RowThread t = row_thread(rows, group, threads, simdgroup, lane);
    const RowReader<float> row(losses, 1, t.row == 0 ? rows : 0);
    float sums[SLOTS] = {}, counts[SLOTS] = {};
    for (ulong k = SLOTS * t.index; row.has(k); k += SLOTS * t.count) {
        float slots[SLOTS];
        row.load(k, 0.0f, slots);
        for (uint i = 0; i < SLOTS; ++i) {
            sums[i] += slots[i];
        }
        const uint left = params.mean != 0 ? slots_left(k, rows) : 0;
        for (uint i = 0; i < left; ++i) {
            counts[i] += params.ignores != 0 && long(targets[k + i]) == params.ignored ? 0.0f : 1.0f;
        }
    }
    const float total = combine_row<Add>(sums, t, partial), count = combine_row<Add>(counts, t, partial + 32);
    if (t.row == 0 && t.index == 0) {
        loss[0] = params.mean != 0 ? total / count : total;
    }
}

template <typename T, typename I, uint COUNT, uint THREADS>
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
    if (params.with_loss != 0 && t.index == 0) {
        loss[t.row] = ignored ? 0.0f : target == OUTSIDE ? NAN : strict::log(found.sum) - (widen(logits[start + target]) - found.max);
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
    each_visit<sizeof(T) == 4 ? 1 : 4>(row, t, slopes);
}
