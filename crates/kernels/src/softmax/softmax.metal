// Softmax and log-softmax, each row shared in the canonical row order.
//
// Rows of up to 32768 elements are kept in registers and read once, longer ones three times. Beyond the end of a row stands −∞, whose
// exponential is zero.

template <typename T, uint LOG>
[[kernel]] void softmax(
    device const T* x [[buffer(0)]],
    device T* y [[buffer(1)]],
    constant Rows& rows [[buffer(2)]],
    threadgroup float* partial [[threadgroup(0)]],
    uint group [[threadgroup_position_in_grid]],
    uint threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const RowThread t = row_thread(rows.length, group, threads, simdgroup, lane);
    const ulong n = t.row < rows.outer * rows.inner ? rows.length : 0;
    const ulong start = t.row / rows.inner * rows.length * rows.inner + t.row % rows.inner;
    const RowReader<T> from(x + start, rows.inner, n);
    const RowWriter<T> to(y + start, rows.inner, n);
    const uint first = SLOTS * t.index, stride = SLOTS * t.count;

    float kept[KEPT][SLOTS];
    float slots[SLOTS];
    float accumulators[SLOTS];
    for (uint i = 0; i < SLOTS; ++i) {
        accumulators[i] = Larger::identity;
    }
    for (uint v = 0; v < KEPT; ++v) {
        from.load(first + v * stride, -INFINITY, kept[v]);
        for (uint i = 0; i < SLOTS; ++i) {
            accumulators[i] = Larger::apply(accumulators[i], kept[v][i]);
        }
    }
    for (ulong k = first + KEPT * stride; k < n; k += stride) {
        from.load(k, -INFINITY, slots);
        for (uint i = 0; i < SLOTS; ++i) {
            accumulators[i] = Larger::apply(accumulators[i], slots[i]);
        }
    }
    const float max = combine_row<Larger>(accumulators, t, partial);

    for (uint i = 0; i < SLOTS; ++i) {
        accumulators[i] = Add::identity;
    }
    for (uint v = 0; v < KEPT; ++v) {
        if (v * stride < rows.length) {
            for (uint i = 0; i < SLOTS; ++i) {
                const float shifted = kept[v][i] - max;
                const float e = strict::exp_nonpositive(shifted);
                accumulators[i] += e;
                kept[v][i] = LOG ? shifted : e;
            }
        }
    }
    for (ulong k = first + KEPT * stride; k < n; k += stride) {
        from.load(k, -INFINITY, slots);
        for (uint i = 0; i < SLOTS; ++i) {
            accumulators[i] += strict::exp_nonpositive(slots[i] - max);
        }
    }
    const float sum = combine_row<Add>(accumulators, t, partial + 32);
    const float scale = LOG ? strict::log(sum) : 1.0f / sum;

    for (uint v = 0; v < KEPT; ++v) {
        for (uint i = 0; i < SLOTS; ++i) {
            kept[v][i] = LOG ? kept[v][i] - scale : kept[v][i] * scale;
        }
        to.store(first + v * stride, kept[v]);
    }
    for (ulong k = first + KEPT * stride; k < n; k += stride) {
        from.load(k, -INFINITY, slots);
        for (uint i = 0; i < SLOTS; ++i) {
            const float shifted = slots[i] - max;
            slots[i] = LOG ? shifted - scale : strict::exp_nonpositive(shifted) * scale;
        }
        to.store(k, slots);
    }
}
