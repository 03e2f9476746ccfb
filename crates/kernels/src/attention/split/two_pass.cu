// What a thread block finds goes to device memory, where combine.cu puts the parts together: all rows' sums of each part, then their states.

typedef float Result;
#define CLUSTERED
constexpr bool PREFETCHED = false;

// Nothing is sent from one to another.
struct Received {};
constexpr int RECEIVED = 0;

template <typename Tile>
DEVICE void expect_parts(Received&, const Tile&) {}

template <typename Tile>
DEVICE void finish(Memory& memory, Received&, const Tile& tile, bool has_newest, Result* result, const Outbox&) {
    const ScoreParams& p = tile.p.score;
    const int part = blockIdx.x, parts = gridDim.x, lane = threadIdx.x % 32;
    float* const states = result + i64(p.batch * p.heads * p.queries) * parts * WIDTH;
    for (int r = threadIdx.x / 32; r < tile.count(); r += WARPS) {
        const int at = tile.place(r) * parts + part;
        const auto keep_state = [&](float base, float sum) {
            if (lane == 0) {
                states[2 * at] = base;
                states[2 * at + 1] = sum;
            }
        };
        put_together(memory, r, has_newest, keep_state, [&](int i, float total) { result[i64(at) * WIDTH + 32 * i + lane] = total; });
    }
}
