// The gradient of softmax and log-softmax: rows of the output and of its gradient are read once and kept in registers, or read twice, the second time from the
// caches.

template <uint LOG>
inline void fold_slots(thread const float (&values)[SLOTS], thread const float (&gradients)[SLOTS], thread float (&accumulators)[SLOTS]) {
    for (uint i = 0; i < SLOTS; ++i) {
        accumulators[i] = LOG ? accumulators[i] + gradients[i] : fma(values[i], gradients[i], accumulators[i]);
    }
}

template <uint LOG>
inline void differentiate(thread const float (&values)[SLOTS], float sum, thread float (&gradients)[SLOTS]) {
    for (uint i = 0; i < SLOTS; ++i) {
        gradients[i] = LOG ? gradients[i] - strict::exp_nonpositive(values[i]) * sum : values[i] * (gradients[i] - sum);
    }
}

template <typename T, uint LOG, uint VISITS, uint COUNT>
inline void differentiate_kept(device const T* y, device const T* dy, device T* dx, RowShare<T, VISITS, COUNT> share, threadgroup float* partial) {
    typename RowShare<T, VISITS, COUNT>::template Kept<T> output, upstream;
    share.template load_once<WORDS>(y, 0.0f, output);
    share.template load_once<WORDS>(dy, 0.0f, upstream);
    float values[SLOTS], gradients[SLOTS];
    float accumulators[SLOTS] = {};
#pragma unroll
    for (uint v = 0; v < VISITS; ++v) {
        if (share.has(v)) {
            output.widen_visit(v, values);
            upstream.widen_visit(v, gradients);
            fold_slots<LOG>(values, gradients, accumulators);
        }
    }
    const float sum = share.template combine<Add>(accumulators, partial);
#pragma unroll
    for (uint v = 0; v < VISITS; ++v) {
        if (share.has(v)) {
            output.widen_visit(v, values);
            upstream.widen_visit(v, gradients);
            differentiate<LOG>(values, sum, gradients);
            share.store(dx, v, gradients);
        }
    }
}

template <typename T, uint LOG, uint VISITS, uint COUNT, uint THREADS>
[[kernel, max_total_threads_per_threadgroup(THREADS)]] void softmax_gradient(
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
    if (VISITS > 0) {
        if (VISITS > 1 && n == 0) {
            return;
        }
        const ulong start = n > 0 ? row_start<VISITS>(t, rows.length) : 0;
        const RowShare<T, VISITS, COUNT> share(t, uint(n), is_wide(y) & is_wide(dy) & is_wide(dx));
        differentiate_kept<T, LOG, VISITS, COUNT>(y + start, dy + start, dx + start, share, partial);
        return;
    }
    const ulong start = n > 0 ? t.row / rows.inner * rows.length * rows.inner + t.row % rows.inner : 0;
    const RowReader<T> output(y + start, rows.inner, n), upstream(dy + start, rows.inner, n);
    const ulong first = SLOTS * t.index, stride = SLOTS * t.count;
    float values[SLOTS], gradients[SLOTS];
    float accumulators[SLOTS] = {};
    for (ulong k = first; output.has(k); k += stride) {
        upstream.load(k, 0.0f, gradients);
        if (!LOG) {
            output.load(k, 0.0f, values);
        }
        fold_slots<LOG>(values, gradients, accumulators);
    }
    const float sum = combine_row<Add>(accumulators, t, partial);
    const RowWriter<T> to(dx + start, rows.inner, n);
    for (ulong k = first; output.has(k); k += stride) {
        output.load(k, 0.0f, values);
        upstream.load(k, 0.0f, gradients);
        differentiate<LOG>(values, sum, gradients);
        to.store(k, gradients);
    }
}
