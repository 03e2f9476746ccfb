// Merges the sums of a row's blocks in index order: a threadgroup for each row and MERGED elements of its values. The factors of MERGED blocks at a
// time are made side by side, as the greatest score so far can be had without the sums.

constant constexpr uint MERGED = 128;
// Sums loaded ahead.
constant constexpr uint AHEAD = 16;

template <typename Q>
[[kernel]] void attention_merge(
    device const float* values [[buffer(0)]],
    device const float* states [[buffer(1)]],
    device const int* positions [[buffer(2)]],
    device const int* lengths [[buffer(3)]],
    device Q* y [[buffer(4)]],
    constant Params& p [[buffer(5)]],
    threadgroup float* shared [[threadgroup(0)]],
    uint index [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]])
{
    threadgroup float* greatest = shared;
    threadgroup float* sums = greatest + MERGED;
    threadgroup Factors* factors = reinterpret_cast<threadgroup Factors*>(sums + MERGED);

    const uint width = uint(p.value_width), chunks = (width + MERGED - 1) / MERGED, column = index % chunks * MERGED + thread_index;
    const uint row = index / chunks, queries = uint(p.score.queries), heads = uint(p.score.heads);
    const uint t = row % queries, h = row / queries % heads, b = row / queries / heads;
    const KeyRange keys = attended(p.score, positions, lengths, b, t);
    const uint blocks = (uint(p.score.keys) + BLOCK - 1) / BLOCK, end = keys.start < keys.end ? (keys.end + BLOCK - 1) / BLOCK : 0;
    const ulong first = ulong(row) * blocks;

    State state = {-INFINITY, 0.0f};
    float total = 0.0f;
    for (uint block = keys.start / BLOCK; block < end; block += MERGED) {
        const uint count = min(MERGED, end - block);
        if (thread_index < count) {
            greatest[thread_index] = states[2 * (first + block + thread_index)];
            sums[thread_index] = states[2 * (first + block + thread_index) + 1];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        float before = state.greatest;
        for (uint i = 0; i < count; ++i) {
            before = i < thread_index ? Greatest::apply(before, greatest[i]) : before;
            state.greatest = Greatest::apply(state.greatest, greatest[i]);
        }
        if (thread_index < count) {
            factors[thread_index] = Factors::of(before, greatest[thread_index]);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint start = 0; start < count; start += AHEAD) {
            float next[AHEAD];
#pragma unroll
            for (uint i = 0; i < AHEAD; ++i) {
                next[i] = values[(first + block + min(start + i, count - 1)) * width + min(column, width - 1)];
            }
#pragma unroll
            for (uint i = 0; i < AHEAD; ++i) {
                if (start + i < count) {
                    const Factors f = factors[start + i];
                    state.sum = f.merge(state.sum, sums[start + i]);
                    total = f.merge(total, next[i]);
                }
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (column < width) {
        const float scale = state.greatest == -INFINITY ? 0.0f : 1.0f / state.sum;
        y[row_of(p.y, b, h, t) + column] = narrow<Q>(total * scale);
    }
}
