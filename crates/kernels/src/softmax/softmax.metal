// Softmax and log-softmax: a threadgroup for each row, shared in the canonical row order.
//
// A thread keeps the first KEPT visits of its elements in registers: rows of up to 32768 elements are read once. Longer ones are read again.

constant constexpr uint KEPT = 4;

template <typename T, uint LOG>
[[kernel]] void softmax(
    device const T* x [[buffer(0)]],
    device T* y [[buffer(1)]],
    constant Rows& rows [[buffer(2)]],
    threadgroup float* partial [[threadgroup(0)]],
    uint row [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]],
    uint count [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const RowThread t = {index, count, lane, simdgroup};
    const ulong start = row / rows.inner * rows.length * rows.inner + row % rows.inner;
    const RowReader<T> from(x + start, rows.inner, uint(rows.length));
    const RowWriter<T> to(y + start, rows.inner, uint(rows.length));
    const uint first = SLOTS * index, stride = SLOTS * count, n = from.n;

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
    for (uint k = first + KEPT * stride; k < n; k += stride) {
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
        for (uint i = 0; i < SLOTS; ++i) {
            const float e = strict::exp_nonpositive(kept[v][i] - max);
            accumulators[i] += first + v * stride + i < n ? e : 0.0f;
            kept[v][i] = LOG ? kept[v][i] - max : e;
        }
    }
    for (uint k = first + KEPT * stride; k < n; k += stride) {
        from.load(k, -INFINITY, slots);
        for (uint i = 0; i < SLOTS; ++i) {
            accumulators[i] += k + i < n ? strict::exp_nonpositive(slots[i] - max) : 0.0f;
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
    for (uint k = first + KEPT * stride; k < n; k += stride) {
        from.load(k, -INFINITY, slots);
        for (uint i = 0; i < SLOTS; ++i) {
            const float shifted = slots[i] - max;
            slots[i] = LOG ? shifted - scale : strict::exp_nonpositive(shifted) * scale;
        }
        to.store(k, slots);
    }
}
