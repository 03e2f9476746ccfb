// Combines the sums of a row's blocks in index order: a threadgroup for each row and 32 elements of its values.
//
// COMBINED blocks at a time: their factors are made side by side, as the greatest score so far can be had without the sums, and so are the products of
// their sums; one simdgroup then follows the order, a multiplication and addition for each block.

constant constexpr uint COMBINED = 128;
constant constexpr uint SIMDGROUPS = 8;
// Blocks whose sums a simdgroup brings.
constant constexpr uint SHARE = COMBINED / SIMDGROUPS;

// What was left of a row and a column.
struct InMemory {
    device const float* sums;
    device const float* states;
    uint width;

    float sum(uint block) const { return sums[ulong(block) * width]; }
    State state(uint block) const { return {states[2 * block], states[2 * block + 1]}; }
};

// The greatest of a simdgroup's numbers up to this lane's.
inline float greatest_up_to(float value, uint lane) {
    for (ushort distance = 1; distance < 32; distance *= 2) {
        const float below = simd_shuffle_up(value, distance);
        value = lane >= distance ? Greatest::apply(below, value) : value;
    }
    return value;
}

// Declared for more threads than there are, so that registers are left for the next launch's threadgroups, whose weights are in flight meanwhile.
template <typename Q>
[[kernel, max_total_threads_per_threadgroup(1024)]] void attention_combine(
    device const float* sums [[buffer(0)]],
    device const float* states [[buffer(1)]],
    device const int* positions [[buffer(2)]],
    device const int* lengths [[buffer(3)]],
    device Q* y [[buffer(4)]],
    constant Params& p [[buffer(5)]],
    threadgroup float* products [[threadgroup(0)]],
    uint index [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    trigger_launches();
    threadgroup Factors* factors = reinterpret_cast<threadgroup Factors*>(products + 32 * COMBINED);
    threadgroup float* totals = reinterpret_cast<threadgroup float*>(factors + COMBINED);
    threadgroup float* greatest_of = totals + COMBINED;

    const uint width = uint(p.value_width), chunks = (width + 31) / 32, column = index % chunks * 32 + lane;
    const uint row = index / chunks, queries = uint(p.score.queries), heads = uint(p.score.heads);
    const uint t = row % queries, h = row / queries % heads, b = row / queries / heads;
    const KeyRange keys = attended(p.score, positions, lengths, b, t);
    const uint blocks = (uint(p.score.keys) + BLOCK - 1) / BLOCK, end = keys.start < keys.end ? (keys.end + BLOCK - 1) / BLOCK : 0;
    const ulong first = ulong(row) * blocks;
    const uint own = 32 * simdgroup + lane;
    await_launches();

    uint block = keys.start / BLOCK;
    if (block + FEW >= end) {
        if (simdgroup == 0 && column < width) {
            y[row_of(p.y, b, h, t) + column] = narrow<Q>(combine_few(InMemory{sums + first * width + column, states + 2 * first, width}, block, end));
        }
        return;
    }
    State state = {-INFINITY, 0.0f};
    float total = 0.0f;
    for (; block < end; block += COMBINED) {
        const uint count = min(COMBINED, end - block);
        float next[SHARE];
#pragma unroll
        for (uint i = 0; i < SHARE; ++i) {
            const uint at = min(i * SIMDGROUPS + simdgroup, count - 1);
            next[i] = sums[(first + block + at) * width + min(column, width - 1)];
        }
        State mine = {-INFINITY, 0.0f};
        if (own < count) {
            mine = {states[2 * (first + block + own)], states[2 * (first + block + own) + 1]};
        }
        const float greatest = greatest_up_to(mine.greatest, lane);
        if (lane == 31) {
            greatest_of[simdgroup] = greatest;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        float before = state.greatest;
        for (uint g = 0; g < COMBINED / 32; ++g) {
            before = g < simdgroup ? Greatest::apply(before, greatest_of[g]) : before;
            state.greatest = Greatest::apply(state.greatest, greatest_of[g]);
        }
        const float below = simd_shuffle_up(greatest, 1);
        before = lane > 0 ? Greatest::apply(before, below) : before;
        if (own < count) {
            const Factors f = Factors::of(before, mine.greatest);
            factors[own] = f;
            totals[own] = mine.sum * f.next;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
        for (uint i = 0; i < SHARE; ++i) {
            const uint at = i * SIMDGROUPS + simdgroup;
            if (at < count) {
                products[at * 32 + lane] = next[i] * factors[at].next;
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (simdgroup == 0) {
#pragma unroll 8
            for (uint i = 0; i < count; ++i) {
                const float factor = factors[i].before;
                state.sum = fma(state.sum, factor, totals[i]);
                total = fma(total, factor, products[i * 32 + lane]);
            }
        }
    }
    if (simdgroup == 0 && column < width) {
        const float scale = state.greatest == -INFINITY ? 0.0f : 1.0f / state.sum;
        y[row_of(p.y, b, h, t) + column] = narrow<Q>(total * scale);
    }
}
