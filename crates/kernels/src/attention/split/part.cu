// A part of the keys that eight rows attend (a row is a query of one of the heads that share keys), by a thread block whose warps take steps in turn and
// put their sums together at the end. Keys and values are read once.

// Twelve warps fit a multiprocessor, with registers left for those of combine.cu beside them, where the compiler can be asked for that.
#if __CUDACC_VER_MAJOR__ > 12 || __CUDACC_VER_MINOR__ >= 4
#define RESIDENT __maxnreg__(144)
#else
#define RESIDENT __launch_bounds__(32 * WARPS, 12 / WARPS)
#endif

// Shared memory: queries as operands (elements of row lane / 4, in the order that a lane has those of a key), and what warps found.
struct Memory {
    Words queries[PIECES][32];
    float bases[WARPS][ROWS];
    float sums_of_weights[WARPS][ROWS];
    float sums[WARPS][ROWS][WIDTH + 4];
    // A key that is not in memory yet, as a find of its own: its scores, and its value.
    float newest_scores[ROWS];
    float newest_value[WIDTH];
};

// The rows of a thread block: y counts tiles, z the key heads of all sequences.
struct Tile {
    const Params& p;
    int group;
    int rows;
    int batch;
    int kv_head;

    DEVICE Tile(const Params& p, const SplitParams& split)
        : p(p), group(split.group), rows(int(p.score.queries) * group), batch(blockIdx.z / u32(p.score.kv_heads)),
          kv_head(blockIdx.z % u32(p.score.kv_heads)) {}

    DEVICE bool exists(int r) const { return int(blockIdx.y) * ROWS + r < rows; }
    // A row that does not exist is taken for the last one.
    DEVICE u32 row(int r) const { return min(int(blockIdx.y) * ROWS + r, rows - 1); }
    DEVICE int query(int r) const { return row(r) / u32(group); }
    DEVICE int head(int r) const { return kv_head * group + row(r) % u32(group); }
    // Its number among all rows of the output.
    DEVICE int place(int r) const { return (batch * int(p.score.heads) + head(r)) * int(p.score.queries) + query(r); }
};

// The steps of a warp, from `step` on. The first one's elements are sent for before the launches ahead have ended, after which `ready` shares the queries;
// but the values of one of several are sent for then, unless all are PREFETCHED: the launch ahead reads memory too, and waits behind what is sent for.
template <bool PREFETCHED, bool WIDE, typename Ready>
DEVICE void attend(const Memory& memory, float scale, Step<WIDE> coming, const KeyRange (&ranges)[2], int step, int end, Softmax& softmax, Ready ready) {
    const int lane = threadIdx.x % 32;
    const bool late = !PREFETCHED && step + WARPS < end;
    if (step < end) {
        coming.load_keys(step);
        if (!late) {
            coming.load_values(step);
        }
    }
    ready();
    if (late) {
        coming.load_values(step);
    }
    __syncthreads();
    for (; step < end; step += WARPS) {
        float scores[4] = {};
#pragma unroll
        for (int j = 0; j < PIECES; ++j) {
            const Words query = memory.queries[j][lane];
            const Words &one = coming.key[0][j], &other = coming.key[1][j];
            multiply(scores, one.at[0], other.at[0], one.at[1], other.at[1], query.at[0], query.at[1]);
            multiply(scores, one.at[2], other.at[2], one.at[3], other.at[3], query.at[2], query.at[3]);
        }
        if (step + WARPS < end) {
            coming.load_keys(step + WARPS);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int key = step * STEP + lane / 4 + i / 2 * 8;
            const bool holds = ranges[i % 2].start <= key && key < ranges[i % 2].end;
            scores[i] = holds ? scores[i] * scale : NEVER;
        }
        u32 weights[2];
        softmax.weigh(scores, weights);
        softmax.add(weights, coming.value);
        if (step + WARPS < end) {
            coming.load_values(step + WARPS);
        }
    }
}

// A thread block's part of the keys `all`, of which a lane's rows attend `ranges`.
template <bool PREFETCHED, typename Ready>
DEVICE void attend(Memory& memory, const Tile& tile, const KV* k, const KV* v, KeyRange all, const KeyRange (&ranges)[2], Softmax& softmax, Ready ready) {
    const Params& p = tile.p;
    const u32 part = blockIdx.x, parts = gridDim.x;
    const u32 before = all.start / STEP, steps = all.start < all.end ? (all.end + STEP - 1) / STEP - before : 0;
    // The first parts have a step more than the others.
    const u32 each = steps / parts, more = steps % parts, begin = before + each * part + min(part, more), end = begin + each + (part < more ? 1 : 0);
    const KV* keys = k + row_of(p.score.k, tile.batch, tile.kv_head, 0);
    const KV* values = v + row_of(p.v, tile.batch, tile.kv_head, 0);
    const int step = begin + threadIdx.x / 32;
    const float scale = p.score.scale * LOG2_E;
    softmax.clear();
    if (is_wide(keys, p.score.k.token) && is_wide(values, p.v.token)) {
        attend<PREFETCHED>(memory, scale, Step<true>(keys, values, p, all), ranges, step, end, softmax, ready);
    } else {
        attend<PREFETCHED>(memory, scale, Step<false>(keys, values, p, all), ranges, step, end, softmax, ready);
    }
}

// Leaves what a warp found in shared memory.
DEVICE void share(Memory& memory, Softmax& softmax) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float sum = softmax.sum[r];
#pragma unroll
        for (int lanes = 4; lanes <= 16; lanes *= 2) {
            sum += __shfl_xor_sync(~0u, sum, lanes);
        }
        const int row = lane % 4 * 2 + r;
        if (lane < 4) {
            memory.bases[warp][row] = softmax.base[r];
            memory.sums_of_weights[warp][row] = sum;
        }
#pragma unroll
        for (int i = 0; i < CHUNKS * 4; ++i) {
            const float(&sums)[4] = softmax.sums[i / 4][i % 4];
            *reinterpret_cast<float2*>(&memory.sums[warp][row][i / 4 * 64 + lane / 4 * 8 + i % 4 * 2]) = make_float2(sums[r], sums[2 + r]);
        }
    }
}

// Puts what warps found for a row on one base, with the newest key's if there is one: gives the base and the sum of weights to `keep_state`, each element
// to `keep`. To be called by a warp, after all of them have shared.
template <bool NEWEST, typename KeepState, typename Keep>
DEVICE void put_together(const Memory& memory, int row, KeepState keep_state, Keep keep) {
    const int lane = threadIdx.x % 32;
    float base = NEWEST ? memory.newest_scores[row] : NEVER, factors[WARPS];
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        base = fmaxf(base, memory.bases[w][row]);
    }
    const float shift = Softmax::shift(base), newest = NEWEST ? exp2_approximate(memory.newest_scores[row] - shift) : 0.0f;
    float sum = newest;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        factors[w] = exp2_approximate(memory.bases[w][row] - shift);
        sum = fmaf(memory.sums_of_weights[w][row], factors[w], sum);
    }
    __syncwarp();
    if (lane == 0) {
        keep_state(base, sum);
    }
#pragma unroll
    for (int i = 0; i < WIDTH / 32; ++i) {
        float total = NEWEST ? memory.newest_value[32 * i + lane] * newest : 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            total = fmaf(memory.sums[w][row][32 * i + lane], factors[w], total);
        }
        keep(32 * i + lane, total);
    }
}
