// Adapters of rows, strict, in two launches.

constant constexpr uint ROWS_SIMDGROUPS = 8;

// The adapter of a row: which, and of what rank; none of rank 0.
struct RowAdapter {
    ulong number;
    uint rank;

    RowAdapter(constant Params& p, device const int* ranks, device const int* adapters, uint row) : number(0), rank(0) {
        const uint found = uint(adapters[row]);
        if (found < p.count) {
            number = found;
            rank = uint(clamp(ranks[found], 0, int(p.r)));
        }
    }
};

// A simdgroup for each row of x and of its adapter's A.
template <typename T>
[[kernel, max_total_threads_per_threadgroup(256)]] void lora_rows_project(
    device const T* x [[buffer(0)]],
    device const float* a [[buffer(1)]],
    device const int* ranks [[buffer(2)]],
    device const int* adapters [[buffer(3)]],
    device float* projected [[buffer(4)]],
    constant Params& p [[buffer(5)]],
    uint index [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const uint groups = (uint(p.r) + ROWS_SIMDGROUPS - 1) / ROWS_SIMDGROUPS, row = index / groups, k = uint(p.k);
    const uint r = index % groups * ROWS_SIMDGROUPS + simdgroup;
    await_launches();
    const RowAdapter adapter(p, ranks, adapters, row);
    if (r >= adapter.rank) {
        return;
    }
    const Lines<T> left(x + ulong(row) * k, long(k), 1, 1);
    const Lines<float> right(a + (adapter.number * p.r + r) * k, long(k), 1, 1);
    DotTile<Lines<T>, Lines<float>, 1, 1> tile;
    const float sum = tile.product(left, right, k, lane);
    if (lane == 0) {
        projected[ulong(row) * p.r + r] = sum;
    }
}

// A thread for each element of y.
template <typename T>
[[kernel, max_total_threads_per_threadgroup(256)]] void lora_rows(
    device const T* base [[buffer(0)]],
    device const float* projected [[buffer(1)]],
    device const float* b [[buffer(2)]],
    device const float* scales [[buffer(3)]],
    device const int* ranks [[buffer(4)]],
    device const int* adapters [[buffer(5)]],
    device T* y [[buffer(6)]],
    constant Params& p [[buffer(7)]],
    uint index [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]])
{
    constexpr uint THREADS = 32 * ROWS_SIMDGROUPS;
    const uint n = uint(p.n), groups = (n + THREADS - 1) / THREADS, row = index / groups, column = index % groups * THREADS + thread_index;
    if (column >= n) {
        return;
    }
    await_launches();
    const RowAdapter adapter(p, ranks, adapters, row);
    float value = widen(base[ulong(row) * n + column]);
    if (adapter.rank > 0) {
        device const float* factors = b + adapter.number * p.r * n + column;
        device const float* terms = projected + ulong(row) * p.r;
        // The lanes of the canonical order one after the other; those without elements hold +0.
        float lanes[32];
        for (uint lane = 0; lane < 32; ++lane) {
            float slots[SLOTS] = {};
            for (uint k = lane * SLOTS; k < adapter.rank; k += 32 * SLOTS) {
                for (uint i = 0; i < SLOTS && k + i < adapter.rank; ++i) {
                    slots[i] = fma(terms[k + i], factors[ulong(k + i) * n], slots[i]);
                }
            }
            lanes[lane] = combine_slots<Add>(slots);
        }
        for (uint half_count = 16; half_count > 0; half_count /= 2) {
            for (uint lane = 0; lane < half_count; ++lane) {
                lanes[lane] += lanes[lane + half_count];
            }
        }
        value += lanes[0] * scales[adapter.number];
    }
    y[ulong(row) * n + column] = narrow<T>(value);
}
