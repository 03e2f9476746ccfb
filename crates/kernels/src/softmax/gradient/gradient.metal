// The gradient of softmax and log-softmax: rows of the output and of its gradient are read twice, the second time from the caches.

template <typename T, uint LOG, uint VISITS, uint COUNT>
[[kernel]] void softmax_gradient(
    device const T* y [[buffer(0)]],
    device const T* dy [[buffer(1)]],
    device T* dx [[buffer(2)]],
    constant Rows& rows [[buffer(3)]],
    threadgroup float* partial [[threadgroup(0)]],
    uint group [[threadgroup_position_in_grid]],
    uint threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const RowThread t = row_thread<COUNT>(rows.length, group, threads, simdgroup, lane);
    const ulong n = t.row < rows.outer * rows.inner ? rows.length : 0;
    const ulong start = n > 0 ? t.row / rows.inner * rows.length * rows.inner + t.row % rows.inner : 0;
    const RowReader<T> output(y + start, rows.inner, n), upstream(dy + start, rows.inner, n);
    const ulong first = SLOTS * t.index, stride = SLOTS * t.count;
    float values[SLOTS], gradients[SLOTS];
    float accumulators[SLOTS];
    for (uint i = 0; i < SLOTS; ++i) {
        accumulators[i] = Add::identity;
    }
    for (ulong k = first; output.has(k); k += stride) {
        upstream.load(k, 0.0f, gradients);
        if (LOG) {
            for (uint i = 0; i < SLOTS; ++i) {
                accumulators[i] += gradients[i];
            }
        } else {
            output.load(k, 0.0f, values);
            for (uint i = 0; i < SLOTS; ++i) {
                accumulators[i] = fma(values[i], gradients[i], accumulators[i]);
            }
        }
    }
    const float sum = combine_row<Add>(accumulators, t, partial);
    const RowWriter<T> to(dx + start, rows.inner, n);
    for (ulong k = first; output.has(k); k += stride) {
        output.load(k, 0.0f, values);
        upstream.load(k, 0.0f, gradients);
        for (uint i = 0; i < SLOTS; ++i) {
            gradients[i] = LOG ? gradients[i] - strict::exp_nonpositive(values[i]) * sum : values[i] * (gradients[i] - sum);
        }
        to.store(k, gradients);
    }
}
