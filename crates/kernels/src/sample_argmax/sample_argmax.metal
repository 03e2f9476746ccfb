// The most likely token of a row of logits, which is read once, eight neighbours a thread at a time. Threadgroups find the best of a part of the row each;
// then one finds the best of those, in another launch or, where they are a cluster, in this one.

constant constexpr uint PART_SIMDGROUPS = 8;
constant constexpr uint NO_TOKEN = 0xffffffffu;

// The best that a threadgroup's threads find, for its first simdgroup. `names` has the tokens of the logits, unless they are their places.
template <uint SIMDGROUPS, typename T>
inline Best best_of(
    device const T* logits,
    device const uint* names,
    bool are_named,
    uint n,
    device atomic_uint* error_flag,
    threadgroup Best* shared,
    uint first,
    uint threads,
    uint simdgroup,
    uint lane)
{
    const RowReader<T> row(logits, 1, n);
    Best best = {-INFINITY, NO_TOKEN};
    for (ulong k = SLOTS * ulong(first); k < n; k += SLOTS * ulong(threads)) {
        float slots[SLOTS];
        row.load(k, -INFINITY, slots);
        for (uint i = 0; i < SLOTS; ++i) {
            const uint place = uint(k) + i;
            if (!(slots[i] < INFINITY)) {
                reject(error_flag, place);
            }
            if (slots[i] > -INFINITY) {
                best.meet(slots[i], are_named ? names[place] : place);
            }
        }
    }
    best.share();
    if (lane == 0) {
        shared[simdgroup] = best;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    best = shared[lane % SIMDGROUPS];
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
    const Best best = best_of<PART_SIMDGROUPS>(logits, nullptr, false, uint(params.logits), error_flag, shared, first, threads, simdgroup, lane);
    if (simdgroup == 0 && lane == 0) {
        bests[part] = narrow<T>(best.logit);
        tokens[part] = best.token;
    }
}

template <typename T, uint CLUSTER>
[[kernel]] void sample_argmax(
    device int* state [[buffer(0)]],
    device const T* logits [[buffer(1)]],
    device const uint* names [[buffer(2)]],
    constant Params& params [[buffer(3)]],
    device atomic_uint* error_flag [[buffer(4)]],
    threadgroup Best* shared [[threadgroup(0)]],
    uint group [[threadgroup_position_in_grid]],
    uint threads [[threads_per_grid]],
    uint first [[thread_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    constexpr uint SIMDGROUPS = CLUSTER > 1 ? 32 : PART_SIMDGROUPS;
    await_launches();
    const bool are_named = params.are_named != 0;
    Best best = best_of<SIMDGROUPS>(logits, names, are_named, uint(params.logits), error_flag, shared, first, threads, simdgroup, lane);
    if (CLUSTER > 1) {
        // Behind what the simdgroups found.
        threadgroup Best* own = shared + SIMDGROUPS;
        if (simdgroup == 0 && lane == 0) {
            *own = best;
        }
        meet_cluster();
        if (group == 0 && simdgroup == 0) {
            threadgroup const float* words = reinterpret_cast<threadgroup const float*>(own);
            best.logit = load_from(lane % CLUSTER, words);
            best.token = as_type<uint>(load_from(lane % CLUSTER, words + 1));
            best.share();
        }
        leave_cluster();
    }
    if (group == 0 && simdgroup == 0 && lane == 0) {
        if (best.token == NO_TOKEN) {
            // No logit is finite.
            reject(error_flag, 0);
        } else {
            state[0] = int(best.token);
        }
        state[1] += 1;
    }
}
