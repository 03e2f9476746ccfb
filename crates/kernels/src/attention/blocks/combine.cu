// Combines what blocks left: a thread block for each row, a thread for each element.
//
// Macros: Y (float, f16 or bf16) and WIDTH.

// All rows' sums of each of some parts, then their states.
struct Left {
    const float* sums;
    const State* states;

    DEVICE Left(const float* found, i64 rows, i64 row, u32 parts, int element)
        : sums(found + row * parts * WIDTH + element), states(reinterpret_cast<const State*>(found + rows * parts * WIDTH) + row * parts) {}

    DEVICE float sum(int block) const { return sums[i64(block) * WIDTH]; }
    DEVICE State state(int block) const { return states[block]; }
};

extern "C" __global__ void __launch_bounds__(WIDTH)
    attention_blocks_combine(const float* found, const int* positions, const int* lengths, Y* y,
                             PEERS_PARAMETERS const __grid_constant__ CombineParams params FLAG_PARAMETER) {
    const Params& p = params.attention;
    const Peers peers = PEERS(params.push);
    const u32 row = blockIdx.x, queries = u32(p.score.queries), heads = u32(p.score.heads);
    const u32 query = row % queries, head = row / queries % heads, batch = row / queries / heads;
    admit_launches();
    await_launches();
    const KeyRange keys = attended(p.score, positions, lengths, batch, query);
    const float x = combined(Left(found, gridDim.x, row, params.split.parts, threadIdx.x), keys);
    const i64 at = row_of(p.y, batch, head, query);
    store(y + at + threadIdx.x, x);
    if (PUSHES) {
        constexpr u32 EACH = 16 / sizeof(Y);
        __shared__ float all[WIDTH];
        Exchange exchange(peers);
        all[threadIdx.x] = x;
        __syncthreads();
        if (threadIdx.x == 0) {
            exchange.begin();
        }
        if (threadIdx.x < WIDTH / EACH) {
            const u32 unit = u32(at / EACH) + threadIdx.x, width = u32(params.push.width) / EACH;
            const Placed placed = {unit / width, unit % width, width};
            exchange.send(placed, unit_of<Y>(all + threadIdx.x * EACH));
            exchange.take(placed);
        }
    }
}
