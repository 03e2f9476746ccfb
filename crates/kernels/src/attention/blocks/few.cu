// Attention in blocks of keys for few rows, with the bits of blocks.cu: keys are the rows of the products, so that few queries cost little.
//
// Macros: Q and Y (float, f16 or bf16), KV (f16 or bf16), WIDTH (64 or 128, of queries, keys and values), COLUMNS (of products: rows of queries, those of a query together)
// and EIGHTS (the same in eights).

struct Memory {
    u32 keys;
    u32 values;
    u32 queries;
    u32 weights;
    // Of each warp the rows' greatest scores, and the sums of the weights of every eighth key; the keys that the rows attend.
    float (*most)[COLUMNS];
    float (*sums)[8][COLUMNS];
    KeyRange* ranges;

    DEVICE Memory(unsigned char* shared)
        : keys(shared_address(shared)), values(keys + 2 * WIDTH * BLOCK), queries(values + 2 * WIDTH * BLOCK), weights(queries + 2 * WIDTH * COLUMNS) {
        most = reinterpret_cast<float(*)[COLUMNS]>(shared + (weights - keys) + 2 * BLOCK * COLUMNS);
        sums = reinterpret_cast<float(*)[8][COLUMNS]>(most + 4);
        ranges = reinterpret_cast<KeyRange*>(sums + 4);
    }
};

// A block of keys of a sequence and a key head, keys that any of its rows attends, and those that all do.
struct Item {
    int batch;
    int kv_head;
    int block;
    KeyRange some;
    KeyRange all;
};

struct Work {
    const Params& p;
    const SplitParams& split;
    const int* positions;
    const int* lengths;
    int warp;
    int lane;

    DEVICE int rows() const { return int(p.score.queries) * int(split.group); }
    // A row that does not exist is taken for the last one.
    DEVICE int query(int row) const { return min(row, rows() - 1) / int(split.group); }
    DEVICE int head(const Item& item, int row) const { return item.kv_head * int(split.group) + min(row, rows() - 1) % int(split.group); }

    // The one of this number of all blocks that are attended. To be called by whole warps.
    DEVICE bool find(int index, Item& item) const {
        const ScoreParams& s = p.score;
        for (int first = 0; first < int(s.batch); first += 32) {
            KeyRange some = {0x7fffffff, 0}, all = {0, 0x7fffffff};
            for (int query = 0; first + lane < int(s.batch) && query < int(s.queries); ++query) {
                const KeyRange r = attended(s, positions, lengths, first + lane, query);
                if (r.start < r.end) {
                    some = {min(some.start, r.start), max(some.end, r.end)};
                }
                all = {max(all.start, r.start), min(all.end, r.end)};
            }
            const int blocks = some.start < some.end ? (some.end + BLOCK - 1) / BLOCK - some.start / BLOCK : 0;
            const int own = blocks * int(s.kv_heads);
            int end = own;
#pragma unroll
            for (int lanes = 1; lanes < 32; lanes *= 2) {
                const int before = __shfl_up_sync(~0u, end, lanes);
                end += lane >= lanes ? before : 0;
            }
            const u32 beyond = __ballot_sync(~0u, index < end);
            if (beyond == 0) {
                index -= __shfl_sync(~0u, end, 31);
                continue;
            }
            const int owner = __ffs(beyond) - 1;
            index -= __shfl_sync(~0u, end - own, owner);
            item.batch = first + owner;
            item.some = {__shfl_sync(~0u, some.start, owner), __shfl_sync(~0u, some.end, owner)};
            item.all = {__shfl_sync(~0u, all.start, owner), __shfl_sync(~0u, all.end, owner)};
            item.kv_head = index % int(s.kv_heads);
            item.block = item.some.start / BLOCK + index / int(s.kv_heads);
            return true;
        }
        return false;
    }
};

// A thread has of each 64 keys two, from warp · 16 + lane / 4 on and 8 apart, and of each eight rows two from lane % 4 · 2 on.
constexpr int KEYS = BLOCK / 64;

DEVICE int row_at(int lane, int eight, int c) { return 8 * eight + lane % 4 * 2 + c; }

// Scores of the keys, masked; leaves the warp's greatest ones.
DEVICE void score(const Memory& memory, const Work& work, const Item& item, float (&scores)[KEYS][4 * EIGHTS]) {
    const u64 keys = descriptor(memory.keys, 128 * BLOCK), queries = descriptor(memory.queries, 128 * COLUMNS);
#pragma unroll
    for (int t = 0; t < KEYS; ++t) {
#pragma unroll
        for (int i = 0; i < 4 * EIGHTS; ++i) {
            scores[t][i] = 0.0f;
        }
        settle(scores[t]);
    }
    begin_products();
#pragma unroll
    for (int i = 0; i < WIDTH / 16; ++i) {
#pragma unroll
        for (int t = 0; t < KEYS; ++t) {
            multiply<KV>(scores[t], keys + (t * 64 * 128 + i / 4 * 128 * BLOCK + i % 4 * 32 >> 4), queries + (i / 4 * 128 * COLUMNS + i % 4 * 32 >> 4));
        }
    }
    end_products();
    await_products<0>();
    const int first = item.block * BLOCK;
    const bool whole = item.all.start <= first && first + BLOCK <= item.all.end;
#pragma unroll
    for (int t = 0; t < KEYS; ++t) {
        settle(scores[t]);
    }
#pragma unroll
    for (int e = 0; e < 2 * EIGHTS; ++e) {
        const int row = row_at(work.lane, e / 2, e % 2);
        const KeyRange range = memory.ranges[row];
        float most = NEVER;
#pragma unroll
        for (int t = 0; t < KEYS; ++t) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                float& x = scores[t][e / 2 * 4 + 2 * h + e % 2];
                const int key = first + t * 64 + work.warp * 16 + work.lane / 4 + 8 * h;
                x = whole || (range.start <= key && key < range.end) ? x : NEVER;
                most = fmaxf(most, x);
            }
        }
#pragma unroll
        for (int lanes = 4; lanes <= 16; lanes *= 2) {
            most = fmaxf(most, __shfl_xor_sync(~0u, most, lanes));
        }
        if (work.lane < 4) {
            memory.most[work.warp][row] = most;
        }
    }
}

// Weights of the scores, and of each row the base that they are relative to; leaves the weights' sums.
DEVICE void weigh(const Memory& memory, const Work& work, float (&scores)[KEYS][4 * EIGHTS], float (&bases)[2 * EIGHTS]) {
    const float scale = work.p.score.scale * LOG2_E;
#pragma unroll
    for (int e = 0; e < 2 * EIGHTS; ++e) {
        const int row = row_at(work.lane, e / 2, e % 2);
        const float most = fmaxf(fmaxf(memory.most[0][row], memory.most[1][row]), fmaxf(memory.most[2][row], memory.most[3][row]));
        bases[e] = most == NEVER ? NEVER : __fmul_rn(most, scale);
        const float shift = most == NEVER ? 0.0f : bases[e];
        float sums[KEYS];
#pragma unroll
        for (int t = 0; t < KEYS; ++t) {
            float& low = scores[t][e / 2 * 4 + e % 2];
            float& high = scores[t][e / 2 * 4 + 2 + e % 2];
            low = exp2_approximate(__fmaf_rn(low, scale, -shift));
            high = exp2_approximate(__fmaf_rn(high, scale, -shift));
            sums[t] = __fadd_rn(low, high);
            const u32 both = pack<KV>(low, high), to = memory.weights + t * (128 * COLUMNS) + row * 128 + work.lane / 4 * 2, column = 2 * work.warp;
            store_shared(to + (column ^ row % 8) * 16, (unsigned short)(both));
            store_shared(to + ((column + 1) ^ row % 8) * 16, (unsigned short)(both >> 16));
        }
        memory.sums[work.warp][work.lane / 4][row] = __fadd_rn(sums[0], sums[1]);
    }
}

// Adds up the values by the weights, and leaves each row's sums and state at its place.
template <typename Left>
DEVICE void sum_values(const Memory& memory, const Work& work, const float (&bases)[2 * EIGHTS], const Left& left) {
    const u64 values = descriptor(memory.values, 128 * BLOCK), weights = descriptor(memory.weights, 128 * COLUMNS);
    float sums[WIDTH / 64][4 * EIGHTS] = {};
#pragma unroll
    for (int t = 0; t < WIDTH / 64; ++t) {
        settle(sums[t]);
    }
    begin_products();
#pragma unroll
    for (int i = 0; i < BLOCK / 16; ++i) {
#pragma unroll
        for (int t = 0; t < WIDTH / 64; ++t) {
            multiply<KV, true>(sums[t], values + (t * 128 * BLOCK + i * 16 * 128 >> 4), weights + (i / 4 * 128 * COLUMNS + i % 4 * 32 >> 4));
        }
    }
    end_products();
    i64 places[2 * EIGHTS];
#pragma unroll
    for (int e = 0; e < 2 * EIGHTS; ++e) {
        const int row = row_at(work.lane, e / 2, e % 2), n = work.lane / 4;
        float sum = __fadd_rn(__fadd_rn(memory.sums[0][n][row], memory.sums[1][n][row]), __fadd_rn(memory.sums[2][n][row], memory.sums[3][n][row]));
#pragma unroll
        for (int lanes = 4; lanes <= 16; lanes *= 2) {
            sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, lanes));
        }
        places[e] = left.place(row);
        if (row < work.rows() && work.warp == 0 && work.lane < 4) {
            left.states[places[e]] = {bases[e], sum};
        }
    }
    await_products<0>();
#pragma unroll
    for (int t = 0; t < WIDTH / 64; ++t) {
        settle(sums[t]);
#pragma unroll
        for (int i = 0; i < 4 * EIGHTS; ++i) {
            const int e = i / 4 * 2 + i % 2;
            if (row_at(work.lane, e / 2, e % 2) < work.rows()) {
                left.sums[places[e] * WIDTH + t * 64 + work.warp * 16 + work.lane / 4 + i / 2 % 2 * 8] = sums[t][i];
            }
        }
    }
}

DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Once all copies but the last ones committed are there, of all threads, and what they have stored, `last` included.
template <typename Last>
DEVICE void await_copies(Last last) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    last();
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
}
