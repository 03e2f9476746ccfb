// Adapters of rows, strict, in two launches.

constant constexpr uint ROWS_THREADS = 256;

// The adapter of a row in a layer: which, and of what rank; none of rank 0.
struct RowAdapter {
    ulong number;
    uint rank;

    RowAdapter(constant Params& p, uint layer, device const int* ranks, device const int* adapters, uint row) : number(0), rank(0) {
        const uint found = uint(adapters[row]);
        if (found < p.count[layer]) {
            number = found;
            rank = uint(clamp(ranks[found], 0, int(p.r[layer])));
        }
    }
};

// That of the three which a layer has.
template <typename T>
inline T of_layer(uint layer, T first, T second, T third) {
    return layer == 0 ? first : layer == 1 ? second : third;
}

// A threadgroup for each row of x and of its adapter's A: a thread for each accumulator of the canonical order, so that all of the rows' elements are in flight.
template <typename T>
[[kernel, max_total_threads_per_threadgroup(256)]] void lora_rows_project(
    device const T* x [[buffer(0)]],
    device const float* a0 [[buffer(1)]],
    device const float* a1 [[buffer(2)]],
    device const float* a2 [[buffer(3)]],
    device const int* ranks0 [[buffer(4)]],
    device const int* ranks1 [[buffer(5)]],
    device const int* ranks2 [[buffer(6)]],
    device const int* adapters [[buffer(7)]],
    device float* projected [[buffer(8)]],
    constant Params& p [[buffer(9)]],
    threadgroup float* partial [[threadgroup(0)]],
    uint index [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    constexpr uint AHEAD = 8;
    const uint ranks = uint(p.r[0] + p.r[1] + p.r[2]), row = index / ranks, place = index % ranks, k = uint(p.k);
    const uint layer = uint(place >= p.r[0]) + uint(place >= p.r[0] + p.r[1]);
    const uint r = place - uint(layer > 0 ? p.r[0] : 0) - uint(layer > 1 ? p.r[1] : 0);
    await_launches();
    const RowAdapter adapter(p, layer, of_layer(layer, ranks0, ranks1, ranks2), adapters, row);
    if (r >= adapter.rank) {
        return;
    }
    device const T* left = x + ulong(row) * k;
    device const float* right = of_layer(layer, a0, a1, a2) + (adapter.number * p.r[layer] + r) * k;
    float sum = 0.0f;
    uint i = 32 * simdgroup + lane;
    for (; i + (AHEAD - 1) * ROWS_THREADS < k; i += AHEAD * ROWS_THREADS) {
        float factors[AHEAD], terms[AHEAD];
#pragma unroll
        for (uint visit = 0; visit < AHEAD; ++visit) {
            terms[visit] = widen(left[i + visit * ROWS_THREADS]);
            factors[visit] = right[i + visit * ROWS_THREADS];
        }
#pragma unroll
        for (uint visit = 0; visit < AHEAD; ++visit) {
            sum = fma(terms[visit], factors[visit], sum);
        }
    }
    for (; i < k; i += ROWS_THREADS) {
        sum = fma(widen(left[i]), right[i], sum);
    }
    // A lane's slots pairwise; the simdgroup has four of the lanes.
    for (ushort mask = 1; mask < SLOTS; mask *= 2) {
        sum += simd_shuffle_xor(sum, mask);
    }
    if (lane % SLOTS == 0) {
        partial[4 * simdgroup + lane / SLOTS] = sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simdgroup == 0) {
        sum = combine_lanes<Add>(partial[lane]);
        if (lane == 0) {
            projected[ulong(row) * ranks + place] = sum;
        }
    }
}

// A thread for each element of y. Of the lanes of the canonical order LANES have elements, the others hold +0.
template <typename T, uint LANES>
[[kernel, max_total_threads_per_threadgroup(256)]] void lora_rows(
    device const T* base0 [[buffer(0)]],
    device const T* base1 [[buffer(1)]],
    device const T* base2 [[buffer(2)]],
    device const float* b0 [[buffer(3)]],
    device const float* b1 [[buffer(4)]],
    device const float* b2 [[buffer(5)]],
    device const float* scales0 [[buffer(6)]],
    device const float* scales1 [[buffer(7)]],
    device const float* scales2 [[buffer(8)]],
    device const int* ranks0 [[buffer(9)]],
    device const int* ranks1 [[buffer(10)]],
    device const int* ranks2 [[buffer(11)]],
    device const int* adapters [[buffer(12)]],
    device const float* projected [[buffer(13)]],
    device T* y0 [[buffer(14)]],
    device T* y1 [[buffer(15)]],
    device T* y2 [[buffer(16)]],
    constant Params& p [[buffer(17)]],
    uint index [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]])
{
    const uint first = (uint(p.n[0]) + ROWS_THREADS - 1) / ROWS_THREADS, second = first + (uint(p.n[1]) + ROWS_THREADS - 1) / ROWS_THREADS;
    const uint groups = second + (uint(p.n[2]) + ROWS_THREADS - 1) / ROWS_THREADS, row = index / groups, group = index % groups;
    const uint layer = uint(group >= first) + uint(group >= second), n = uint(p.n[layer]);
    const uint column = (group - of_layer(layer, 0u, first, second)) * ROWS_THREADS + thread_index;
    if (column >= n) {
        return;
    }
    await_launches();
    const RowAdapter adapter(p, layer, of_layer(layer, ranks0, ranks1, ranks2), adapters, row);
    float value = widen(of_layer(layer, base0, base1, base2)[ulong(row) * n + column]);
    if (adapter.rank > 0) {
        device const float* factors = of_layer(layer, b0, b1, b2) + adapter.number * p.r[layer] * n + column;
        device const float* terms = projected + ulong(row) * (p.r[0] + p.r[1] + p.r[2]) + (layer > 0 ? p.r[0] : 0) + (layer > 1 ? p.r[1] : 0);
        float lanes[LANES];
#pragma unroll
        for (uint lane = 0; lane < LANES; ++lane) {
            float slots[SLOTS] = {};
            for (uint k = lane * SLOTS; k < adapter.rank; k += 32 * SLOTS) {
                // All are loaded before the first is needed.
                float term[SLOTS], factor[SLOTS];
#pragma unroll
                for (uint i = 0; i < SLOTS; ++i) {
                    const bool inside = k + i < adapter.rank;
                    term[i] = inside ? terms[k + i] : 0.0f;
                    factor[i] = inside ? factors[ulong(k + i) * n] : 0.0f;
                }
#pragma unroll
                for (uint i = 0; i < SLOTS; ++i) {
                    slots[i] = k + i < adapter.rank ? fma(term[i], factor[i], slots[i]) : slots[i];
                }
            }
            lanes[lane] = combine_slots<Add>(slots);
        }
#pragma unroll
        for (uint half_count = LANES / 2; half_count > 0; half_count /= 2) {
#pragma unroll
            for (uint lane = 0; lane < half_count; ++lane) {
                lanes[lane] += lanes[lane + half_count];
            }
        }
        const float sum = LANES < 32 ? lanes[0] + 0.0f : lanes[0];
        value += sum * of_layer(layer, scales0, scales1, scales2)[adapter.number];
    }
    of_layer(layer, y0, y1, y2)[ulong(row) * n + column] = narrow<T>(value);
}
