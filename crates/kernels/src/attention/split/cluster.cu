// The parts are the thread blocks of a cluster, which put them together themselves: each block some elements of every row, from the shared memory of all.

constexpr int SHARE = WIDTH / PARTS;

typedef Q Result;
#define CLUSTERED __cluster_dims__(PARTS, 1, 1)
constexpr bool PREFETCHED = true;

template <bool NEWEST>
DEVICE void finish(Memory& memory, const Tile& tile, Result* result) {
    // A row takes the place of what its first warp found.
    for (int r = threadIdx.x / 32; r < ROWS && tile.exists(r); r += WARPS) {
        const auto keep_state = [&](float base, float sum) {
            memory.bases[0][r] = base;
            memory.sums_of_weights[0][r] = sum;
        };
        put_together<NEWEST>(memory, r, keep_state, [&](int e, float total) { memory.sums[0][r][e] = total; });
    }
    meet();
    const int e = blockIdx.x * SHARE + threadIdx.x % SHARE;
    for (int r = threadIdx.x / SHARE; r < ROWS && tile.exists(r); r += 32 * WARPS / SHARE) {
        float bases[PARTS], sums[PARTS], totals[PARTS];
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            bases[part] = load_from(part, memory.bases[0][r]);
            sums[part] = load_from(part, memory.sums_of_weights[0][r]);
            totals[part] = load_from(part, memory.sums[0][r][e]);
        }
        float base = bases[0], sum = 0.0f, total = 0.0f;
#pragma unroll
        for (int part = 1; part < PARTS; ++part) {
            base = fmaxf(base, bases[part]);
        }
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            const float factor = exp2_approximate(bases[part] - Softmax::shift(base));
            sum = fmaf(sums[part], factor, sum);
            total = fmaf(totals[part], factor, total);
        }
        store(result + row_of(tile.p.y, tile.batch, tile.head(r), tile.query(r)) + e, sum == 0.0f ? 0.0f : total / sum);
    }
    leave();
}
