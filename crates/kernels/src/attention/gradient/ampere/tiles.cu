// What both kernels of attention's gradient share: a thread block has a tile of 64 rows, queries or keys with what belongs to them, and walks over tiles of
// the others, as one team of four warps or as two, which take every second tile. Each warp of a team has 16 rows.
//
// Lane l has rows l / 4 and 8 more of a product's sums, and of each eight columns two from 2 (l % 4) on.

// Sums of a warp's rows and COLUMNS columns.
template <int COLUMNS>
struct Sums {
    float at[COLUMNS / 8][4];

    DEVICE void clear() {
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; ++i) {
            at[i / 4][i % 4] = 0.0f;
        }
    }
};

// The lane's first row in the thread block's tile.
DEVICE int own_row() { return member() / 32 * 16 + lane() / 4; }
// The lane's first column of eight.
DEVICE int own_column() { return lane() % 4 * 2; }

// The dot products of the warp's rows in the tile at `own` with those of the tile at `others`.
DEVICE void dot_products(Sums<BLOCK>& sums, u32 own, u32 others) {
    own += (member() / 32 * 16 + lane() % 16) * PITCH + lane() / 16 * 16;
    others += (lane() / 16 * 8 + lane() % 8) * PITCH + lane() / 8 % 2 * 16;
    sums.clear();
#pragma unroll
    for (int k = 0; k < WIDTH / 16; ++k) {
        u32 a[4];
        load_matrices(a, own + 32 * k);
#pragma unroll
        for (int n = 0; n < BLOCK / 16; ++n) {
            u32 b[4];
            load_matrices(b, others + 16 * n * PITCH + 32 * k);
            multiply<KV>(sums.at[2 * n], a, b[0], b[1]);
            multiply<KV>(sums.at[2 * n + 1], a, b[2], b[3]);
        }
    }
}

// Adds the rows of the tile at `others` by factors for each row of the warp, rounded to KV.
DEVICE void add_rows(Sums<WIDTH>& sums, const Sums<BLOCK>& factors, u32 others) {
    others += lane() % 16 * PITCH + lane() / 16 * 16;
#pragma unroll
    for (int k = 0; k < BLOCK / 16; ++k) {
        u32 a[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            a[i] = pack<KV>(factors.at[2 * k + i / 2][i % 2 * 2], factors.at[2 * k + i / 2][i % 2 * 2 + 1]);
        }
#pragma unroll
        for (int n = 0; n < WIDTH / 16; ++n) {
            u32 b[4];
            load_transposed(b, others + 16 * k * PITCH + 32 * n);
            multiply<KV>(sums.at[2 * n], a, b[0], b[1]);
            multiply<KV>(sums.at[2 * n + 1], a, b[2], b[3]);
        }
    }
}

// Writes the warp's rows by `factor` to rows of a tensor that lie one after the other; those from `count` on do not exist.
DEVICE void store_rows(KV* to, const Sums<WIDTH>& sums, float factor, int count) {
    const bool is_wide = (u64(to) & 3) == 0;
#pragma unroll
    for (int i = 0; i < WIDTH / 4; ++i) {
        const int row = own_row() + i % 2 * 8;
        if (row < count) {
            const u32 pair = pack<KV>(sums.at[i / 2][i % 2 * 2] * factor, sums.at[i / 2][i % 2 * 2 + 1] * factor);
            KV* at = to + row * WIDTH + i / 2 * 8 + own_column();
            if (is_wide) {
                *reinterpret_cast<u32*>(at) = pair;
            } else {
                at[0].bits = (unsigned short)(pair);
                at[1].bits = (unsigned short)(pair >> 16);
            }
        }
    }
}

// Sends COUNT rows from `first` on of those that start at `rows` for the tile at `to`; zeros for what lies outside `range`, which has row 0 at least.
template <int COUNT>
DEVICE void copy_rows(u32 to, const KV* rows, i64 step, int first, KeyRange range) {
    constexpr int PIECES = WIDTH / 8;
    const bool is_wide = ((u64(rows) | u64(step * i64(sizeof(KV)))) & 15) == 0;
#pragma unroll 4
    for (int i = member(); i < COUNT * PIECES; i += THREADS) {
        const int row = i / PIECES, e = i % PIECES * 8;
        const bool exists = range.start <= first + row && first + row < range.end;
        const KV* from = rows + (exists ? (first + row) * step : i64(0)) + e;
        const u32 at = to + row * PITCH + 2 * e;
        if (is_wide) {
            copy_async(at, from, exists ? 16 : 0);
        } else {
            u32 words[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                words[j] = exists ? from[2 * j].bits | u32(from[2 * j + 1].bits) << 16 : 0;
            }
            store_shared(at, words);
        }
    }
}

// A team walks over `count` items: `send` sends for an item's tiles in one of two stages, `take` works on them while the next item's are in flight.
template <int TEAMS, typename Send, typename Take>
DEVICE void walk(int count, Send send, Take take) {
    if (count > 0) {
        send(0, 0);
    }
    end_copies();
    for (int i = 0; i < count; ++i) {
        if (i + 1 < count) {
            send(i + 1, (i + 1) % 2);
            end_copies();
            await_copies<1>();
        } else {
            await_copies<0>();
        }
        meet<TEAMS>();
        take(i, i % 2);
        meet<TEAMS>();
    }
}

// Two stages with two tiles of others each.
struct Stages {
    unsigned char others[2][2][BLOCK * PITCH];
    // Of the queries of a stage: where their weights begin, the product of output and gradient, and the keys that they attend.
    float4 queries[2][BLOCK];
};

// Shared memory: two tiles of the thread block's own rows, numbers of rows, and each team's stages.
struct Memory {
    unsigned char own[2][ROWS * PITCH];
    float products[ROWS];
    int range[2];
    Stages teams[2];
};

// The least range that has those of all threads.
DEVICE KeyRange united(Memory& memory, KeyRange range) {
    if (threadIdx.x == 0) {
        memory.range[0] = 0x7fffffff;
        memory.range[1] = 0;
    }
    __syncthreads();
    if (range.start < range.end) {
        atomicMin(&memory.range[0], range.start);
        atomicMax(&memory.range[1], range.end);
    }
    __syncthreads();
    const KeyRange all = {memory.range[0], memory.range[1]};
    return all.start < all.end ? all : KeyRange{0, 0};
}

// A tile's place: tiles of all heads and sequences are side by side, and those of the same rows neighbours.
struct Tile {
    int first;
    int batch;
    int head;

    DEVICE Tile(u32 index, u32 heads, u32 batches) : first(index / (heads * batches) * ROWS), batch(index % (heads * batches) / heads), head(index % heads) {}
};
