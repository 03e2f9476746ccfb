// What a thread block finds goes to device memory, where combine.cu puts the parts together: all rows' sums of each part, then their states.

typedef float Result;
#define CLUSTERED
constexpr bool PREFETCHED = false;

template <bool NEWEST>
DEVICE void finish(Memory& memory, const Tile& tile, Result* result) {
    const ScoreParams& p = tile.p.score;
    const int part = blockIdx.x, parts = gridDim.x;
    float* const states = result + i64(p.batch * p.heads * p.queries) * parts * WIDTH;
    for (int r = threadIdx.x / 32; r < ROWS && tile.exists(r); r += WARPS) {
        const int at = tile.place(r) * parts + part;
        const auto keep_state = [&](float base, float sum) {
            states[2 * at] = base;
            states[2 * at + 1] = sum;
        };
        put_together<NEWEST>(memory, r, keep_state, [&](int e, float total) { result[i64(at) * WIDTH + e] = total; });
    }
}
