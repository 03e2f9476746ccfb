// The most likely token of a row of logits: each threadgroup finds the best of a part of the row, and one then the best of those. The row is read once,
// eight neighbours a thread at a time.

constant constexpr uint GREEDY_SIMDGROUPS = 8;

// The best of a threadgroup, for its first simdgroup.
inline Best best_of_all(Best best, threadgroup Best* shared, uint simdgroup, uint lane) {
    best.share();
    if (lane == 0) {
        shared[simdgroup] = best;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    best = shared[lane % GREEDY_SIMDGROUPS];
    best.share();
    return best;
}

template <typename T>
[[kernel]] void sample_argmax_part(
    device const T* logits [[buffer(0)]],
    device T* bests [[buffer(1)]],
    device uint* tokens [[buffer(2)]],
    constant Params& params [[buffer(3)]],
    device atomic_uint* error_flag [[buffer(4)]],
    threadgroup Best* shared [[threadgroup(0)]],
    uint part [[threadgroup_position_in_grid]],
    uint threads [[threads_per_grid]],
    uint first [[thread_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    await_launches();
    const uint n = uint(params.tokens);
    const RowReader<T> row(logits, 1, n);
    Best best = {-INFINITY, n};
    for (ulong k = SLOTS * ulong(first); k < n; k += SLOTS * ulong(threads)) {
        float slots[SLOTS];
        row.load(k, -INFINITY, slots);
        for (uint i = 0; i < SLOTS; ++i) {
            if (!(slots[i] < INFINITY)) {
                reject(error_flag, uint(k) + i);
            }
            best.see(slots[i], uint(k) + i);
        }
    }
    best = best_of_all(best, shared, simdgroup, lane);
    if (simdgroup == 0 && lane == 0) {
        bests[part] = narrow<T>(best.logit);
        tokens[part] = best.token;
    }
}

template <typename T>
[[kernel]] void sample_argmax(
    device int* state [[buffer(0)]],
    device const T* bests [[buffer(1)]],
    device const uint* tokens [[buffer(2)]],
    constant Params& params [[buffer(3)]],
    device atomic_uint* error_flag [[buffer(4)]],
    threadgroup Best* shared [[threadgroup(0)]],
    uint index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    await_launches();
    const uint n = uint(params.tokens);
    Best best = {-INFINITY, n};
    if (index < params.parts) {
        best = {widen(bests[index]), tokens[index]};
    }
    best = best_of_all(best, shared, simdgroup, lane);
    if (simdgroup == 0 && lane == 0) {
        if (best.token == n) {
            // No logit is finite.
            reject(error_flag, 0);
        } else {
            state[0] = int(best.token);
        }
        state[1] += 1;
    }
}
