// Adds up what blocks.cu left of a row's blocks, in their order: a thread block for each row, a thread for each element.
//
// Macros: Y (float, f16 or bf16) and WIDTH.

constexpr int TOGETHER = 8;  // Blocks whose sums are in flight at once.

extern "C" __global__ void __launch_bounds__(WIDTH)
    attention_blocks_combine(const float* found, const int* positions, const int* lengths, Y* y, const __grid_constant__ AttentionSplitParams params) {
    const Params& p = params.attention;
    const u32 row = blockIdx.x, queries = u32(p.score.queries), heads = u32(p.score.heads), parts = params.split.parts;
    const u32 query = row % queries, head = row / queries % heads, batch = row / queries / heads;
    const float* values = found + i64(row) * parts * WIDTH + threadIdx.x;
    const State* states = reinterpret_cast<const State*>(found + i64(gridDim.x) * parts * WIDTH) + i64(row) * parts;
    admit_launches();
    await_launches();
    const KeyRange keys = attended(p.score, positions, lengths, batch, query);
    const int end = keys.start < keys.end ? (keys.end + BLOCK - 1) / BLOCK : 0;
    State state = {NEVER, 0.0f};
    float total = 0.0f;
    for (int first = keys.start / BLOCK; first < end; first += TOGETHER) {
        float next[TOGETHER];
        State next_states[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
            const int block = min(first + i, end - 1);
            next[i] = values[i64(block) * WIDTH];
            next_states[i] = states[block];
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
            if (first + i < end) {
                const Factors factors = add(state, next_states[i]);
                total = factors.combine(total, next[i]);
            }
        }
    }
    store(y + row_of(p.y, batch, head, query) + threadIdx.x, __fmul_rn(total, inverse(state)));
}
