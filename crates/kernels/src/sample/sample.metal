// A token drawn from a row of logits, by one threadgroup for each row. The row is read once for the most likely token, once more to draw, and by each filter a few times
// (reach.metal), all but the first from the caches.

// -log(-log(1 - v)) for v = (word + 1/2) / 2^32: a number of Gumbel's distribution.
inline float gumbel(uint word) {
    const float v = min((float(word) + 0.5f) * 2.3283064365386963e-10f, 0.99999994f);
    return -strict::log(-strict::log1p(-v));
}

// No less than gumbel(word).
inline float gumbel_bound(uint word) {
    return 0.6932f * float(clz(word) + 1);
}

// Visits of a row whose elements are in flight at once.
constant constexpr uint AT_ONCE = 4;

template <typename T>
[[kernel, max_total_threads_per_threadgroup(1024)]] void sample(
    device int* state [[buffer(0)]],
    device const T* logits [[buffer(1)]],
    device const float* factors [[buffer(2)]],
    device const uint* numbers [[buffer(3)]],
    constant Params& params [[buffer(4)]],
    device atomic_uint* error_flag [[buffer(5)]],
    threadgroup Shared* shared [[threadgroup(0)]],
    uint number [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]],
    uint threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    state += 2 * number;
    logits += number * params.tokens;
    factors += 3 * number;
    numbers += 3 * number;
    const Worker worker = {shared, index, threads, lane, simdgroup};
    await_launches();
    const float temperature = factors[0], top_p = factors[1], min_p = factors[2];
    const uint top_k = numbers[0], n = uint(params.tokens);
    const uint2 seed(numbers[1], numbers[2]);
    const int position = state[1] + 1;
    const RowReader<T> row(logits, 1, n);
    Best best = {-INFINITY, n};
    for (uint first = SLOTS * index; first < n; first += AT_ONCE * SLOTS * threads) {
        float visits[AT_ONCE][SLOTS];
#pragma unroll
        for (uint v = 0; v < AT_ONCE; ++v) {
            row.load(first + v * SLOTS * threads, -INFINITY, visits[v]);
        }
#pragma unroll
        for (uint v = 0; v < AT_ONCE; ++v) {
            for (uint i = 0; i < SLOTS; ++i) {
                const uint token = first + v * SLOTS * threads + i;
                if (!(visits[v][i] < INFINITY)) {
                    reject(error_flag, token);
                }
                best.see(visits[v][i], token);
            }
        }
    }
    best = worker.best(best);
    if (best.token < n && temperature > 0.0f) {
        ulong least = 0;
        Tokens<T> tokens = {row, n, best.logit, temperature, false};
        if (0 < top_k && top_k < n) {
            least = tokens.reach(least, top_k, worker);
        }
        if (top_p < 1.0f) {
            tokens.weighed = true;
            const ulong total = tokens.total(least, worker), part = ulong(max(top_p, 0.0f) * 4294967296.0f);
            const ulong enough = (total >> 32) * part + ((total & 0xfffffffful) * part >> 32);
            least = tokens.reach(least, max(enough, 1ul), worker);
        }
        best = {-INFINITY, n};
        for (uint k = SLOTS * index; k < n; k += SLOTS * threads) {
            float slots[SLOTS];
            row.load(k, -INFINITY, slots);
            const uint4 words[2] = {philox(uint4(k / 4, uint(position), 0, 0), seed), philox(uint4(k / 4 + 1, uint(position), 0, 0), seed)};
            for (uint i = 0; i < SLOTS && k + i < n; ++i) {
                const float score = tokens.score(slots[i]);
                const uint word = words[i / 4][i % 4];
                if (score + gumbel_bound(word) < best.logit || rank_key(slots[i], k + i) < least || (min_p > 0.0f && strict::exp(score) < min_p)) {
                    continue;
                }
                best.see(score + gumbel(word), k + i);
            }
        }
        best = worker.best(best);
    }
    // All have read the state.
    threadgroup_barrier(mem_flags::mem_device);
    if (index == 0) {
        if (best.token < n) {
            state[0] = int(best.token);
        } else {
            // No logit is finite.
            reject(error_flag, 0);
        }
        state[1] = position;
    }
}
