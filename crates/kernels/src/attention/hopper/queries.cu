// Kernels whose tiles are queries: who works on which, the keys that a tile attends, and a running softmax.

// A tile of queries of one head.
struct Tile {
    int batch;
    int head;
    int first;
    // Keys that any of its queries attends, and those that all do.
    KeyRange some;
    KeyRange all;

    DEVICE int blocks() const { return some.start < some.end ? (some.end + BLOCK - 1) / BLOCK - some.start / BLOCK : 0; }
    // Blocks go down from the last keys.
    DEVICE int first_key(int block) const { return ((some.end - 1) / BLOCK - block) * BLOCK; }
};

// Gives each thread block its tiles; rounds go forth and back so that all get about as many keys.
struct Schedule {
    const Params& p;
    const int* positions;
    const int* lengths;
    int tiles;
    int heads;

    DEVICE Schedule(const Params& p, const int* positions, const int* lengths)
        : p(p), positions(positions), lengths(lengths), tiles((int(p.score.queries) + ROWS - 1) / ROWS), heads(int(p.score.heads * p.score.batch)) {}

    DEVICE int rounds() const { return (tiles * heads + int(gridDim.x) - 1) / int(gridDim.x); }

    // Whether there is a tile in this round. To be called by whole warps.
    DEVICE bool find(int round, Tile& tile) const {
        const int turn = round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x, index = round * gridDim.x + turn;
        if (index >= tiles * heads) {
            return false;
        }
        tile.first = (tiles - 1 - index / heads) * ROWS;
        tile.batch = index % heads / int(p.score.heads);
        tile.head = index % heads % int(p.score.heads);
        KeyRange some = {0x7fffffff, 0}, all = {0, 0x7fffffff};
#pragma unroll
        for (int i = 0; i < ROWS; i += 32) {
            const int query = min(tile.first + i + int(threadIdx.x % 32), int(p.score.queries) - 1);
            const KeyRange r = attended(p.score, positions, lengths, tile.batch, query);
            if (r.start < r.end) {
                some = {min(some.start, r.start), max(some.end, r.end)};
            }
            all = {max(all.start, r.start), min(all.end, r.end)};
        }
        tile.some = {__reduce_min_sync(~0u, some.start), __reduce_max_sync(~0u, some.end)};
        tile.all = {__reduce_max_sync(~0u, all.start), __reduce_min_sync(~0u, all.end)};
        return true;
    }
};

struct Softmax {
    float greatest[2];
    float sum[2];
    // What multiplies scores.
    float scale;

    // Turns scores into weights and finds what multiplies the sums before.
    DEVICE void apply(float (&scores)[BLOCK / 2], float (&factors)[2]) {
        float most[4], sums[4] = {}, bases[2];
#pragma unroll
        for (int i = 0; i < BLOCK / 2; ++i) {
            most[i % 4] = i < 4 ? scores[i] : fmaxf(most[i % 4], scores[i]);
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            most[r] = fmaxf(greatest[r], fmaxf(most[2 * r], most[2 * r + 1]));
        }
#pragma unroll
        for (int lanes = 1; lanes <= 2; lanes *= 2) {
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                most[r] = fmaxf(most[r], __shfl_xor_sync(~0u, most[r], lanes));
            }
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            bases[r] = most[r] == NEVER ? 0.0f : most[r] * scale;
            factors[r] = exp2_approximate(fmaf(greatest[r], scale, -bases[r]));
            greatest[r] = most[r];
        }
#pragma unroll
        for (int i = 0; i < BLOCK / 2; ++i) {
            scores[i] = exp2_approximate(fmaf(scores[i], scale, -bases[i / 2 % 2]));
            sums[i % 4] += scores[i];
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            sum[r] = fmaf(sum[r], factors[r], sums[2 * r] + sums[2 * r + 1]);
        }
    }

    // One over the sum of weights; zero if no key is attended.
    DEVICE float inverse(int r) const {
        float all = sum[r] + __shfl_xor_sync(~0u, sum[r], 1);
        all += __shfl_xor_sync(~0u, all, 2);
        return greatest[r] == NEVER ? 0.0f : 1.0f / all;
    }
};

DEVICE void rescale(float (&sums)[WIDTH / 2], const float (&factors)[2]) {
#pragma unroll
    for (int i = 0; i < WIDTH / 2; ++i) {
        sums[i] *= factors[i / 2 % 2];
    }
}

// The keys that the thread's two rows attend.
DEVICE void find_ranges(const Schedule& schedule, const Tile& tile, const Computer& computer, KeyRange (&ranges)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int query = min(tile.first + computer.row(r), int(schedule.p.score.queries) - 1);
        ranges[r] = attended(schedule.p.score, schedule.positions, schedule.lengths, tile.batch, query);
    }
}
