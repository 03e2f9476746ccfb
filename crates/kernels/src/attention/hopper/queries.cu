// Kernels whose tiles are queries: which thread block works on which, the keys that a tile attends, and a running softmax.

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

// Gives each thread block its tiles: in sections of heads whose keys and values find room in the L2 cache, by turns from the last queries to the first and from the
// first to the last. Rounds go forth and back so that all get about as many keys, which takes some rounds in each section.
struct Schedule {
    const Params& p;
    const int* positions;
    const int* lengths;
    int tiles;
    int heads;
    // Heads of a section, and whether the first one rises.
    int section;
    bool rises;

    DEVICE Schedule(const Params& p, const int* positions, const int* lengths)
        : p(p), positions(positions), lengths(lengths), tiles((int(p.score.queries) + ROWS - 1) / ROWS), heads(int(p.score.heads * p.score.batch)) {
        const int group = int(p.score.heads / p.score.kv_heads), fit = CACHED / max(int(p.score.keys), 1) * group;
        const int balanced = (6 * int(gridDim.x) + tiles - 1) / tiles;
        section = min(max((balanced + group - 1) / group * group, fit), heads);
        rises = (heads + section - 1) / section % 2 == 0;
    }

    // How many keys take 16 MiB with their values.
    static constexpr int CACHED = (16 << 20) / (4 * WIDTH);

    DEVICE int rounds() const { return (tiles * heads + int(gridDim.x) - 1) / int(gridDim.x); }

    // Whether there is a tile in this round. To be called by whole warps.
    DEVICE bool find(int round, Tile& tile) const {
        const int turn = round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x, index = round * gridDim.x + turn;
        if (index >= tiles * heads) {
            return false;
        }
        const int before = index / (tiles * section), within = index - before * tiles * section, width = min(section, heads - before * section);
        const int step = within / width, head = before * section + within % width;
        tile.first = ((before % 2 == 1) == rises ? tiles - 1 - step : step) * ROWS;
        tile.batch = head / int(p.score.heads);
        tile.head = head % int(p.score.heads);
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

// A running softmax of the thread's two rows. Weights are relative to 2^shift, which stays until one of them is too great: sums are seldom rescaled.
struct Softmax {
    // NEVER until a key is attended.
    float shift[2];
    float sum[2];
    // What multiplies scores.
    float scale;

    DEVICE float base(int r) const { return shift[r] == NEVER ? 0.0f : shift[r]; }

    // One over the sum of weights; zero if no key is attended.
    DEVICE float inverse(int r) const {
        float all = sum[r] + __shfl_xor_sync(~0u, sum[r], 1);
        all += __shfl_xor_sync(~0u, all, 2);
        return shift[r] == NEVER ? 0.0f : 1.0f / all;
    }

    // Makes the greatest weight of each row 2^-MARGIN or less, given the greatest of the thread's scores, and finds what multiplies the sums before.
    template <int MARGIN>
    DEVICE void shrink(const float (&greatest)[2], float (&factors)[2]) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            float most = fmaxf(greatest[r], __shfl_xor_sync(~0u, greatest[r], 1));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
            const float before = shift[r];
            shift[r] = fmaxf(before, fmaf(most, scale, float(MARGIN)));
            factors[r] = exp2_approximate(before - base(r));
            sum[r] *= factors[r];
        }
    }
};

DEVICE void rescale(float (&sums)[WIDTH / 2], const float (&factors)[2]) {
#pragma unroll
    for (int i = 0; i < WIDTH / 2; ++i) {
        sums[i] *= factors[i / 2 % 2];
    }
}

// The greatest of a thread's scores in each row.
DEVICE void find_greatest(const float (&scores)[BLOCK / 2], float (&greatest)[2]) {
    float most[4];
#pragma unroll
    for (int i = 0; i < BLOCK / 2; ++i) {
        most[i % 4] = i < 4 ? scores[i] : fmaxf(most[i % 4], scores[i]);
    }
    greatest[0] = fmaxf(most[0], most[1]);
    greatest[1] = fmaxf(most[2], most[3]);
}

// The keys that the thread's two rows attend.
DEVICE void find_ranges(const Schedule& schedule, const Tile& tile, const Computer& computer, KeyRange (&ranges)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int query = min(tile.first + computer.row(r), int(schedule.p.score.queries) - 1);
        ranges[r] = attended(schedule.p.score, schedule.positions, schedule.lengths, tile.batch, query);
    }
}
