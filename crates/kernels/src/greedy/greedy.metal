// The likeliest token of a row of logits, by one threadgroup. The row is read once, eight neighbours a thread at a time.

template <typename T>
[[kernel]] void greedy(
    device int* state [[buffer(0)]],
    device const T* logits [[buffer(1)]],
    constant Params& params [[buffer(2)]],
    device atomic_uint* refusal [[buffer(3)]],
    threadgroup Likeliest* shared [[threadgroup(0)]],
    uint index [[thread_index_in_threadgroup]],
    uint threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const uint n = uint(params.tokens);
    const RowReader<T> row(logits, 1, n);
    Likeliest best = {-INFINITY, n};
    for (uint k = SLOTS * index; k < n; k += SLOTS * threads) {
        float slots[SLOTS];
        row.load(k, -INFINITY, slots);
        for (uint i = 0; i < SLOTS; ++i) {
            if (!(slots[i] < INFINITY)) {
                refuse(refusal, k + i);
            }
            best.see(slots[i], k + i);
        }
    }
    best.share();
    if (lane == 0) {
        shared[simdgroup] = best;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simdgroup > 0) {
        return;
    }
    best = {-INFINITY, n};
    if (lane < threads / 32) {
        best = shared[lane];
    }
    best.share();
    if (lane == 0) {
        if (best.token == n) {
            // No logit is finite.
            refuse(refusal, 0);
        } else {
            state[0] = int(best.token);
        }
        state[1] += 1;
    }
}
