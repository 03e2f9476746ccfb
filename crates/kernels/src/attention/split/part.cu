// A part of the keys that eight rows attend (a row is a query of one of the heads that share keys), by a thread block whose warps take steps in turn and
// put their sums together at the end. Keys and values are read once.

// REGISTERS a thread, where the compiler can be asked for that.
#if 100 * __CUDACC_VER_MAJOR__ + __CUDACC_VER_MINOR__ >= 1204
#define RESIDENT __maxnreg__(REGISTERS)
#else
#define RESIDENT __launch_bounds__(32 * WARPS, 65536 / (32 * WARPS * REGISTERS))
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

// The rows of a thread block: y counts tiles, z the key heads of all sequences. A TOKEN is the one query of one sequence.
template <bool TOKEN>
struct Tile {
    const Params& p;
    int group;
    int rows;
    int batch;
    int kv_head;

    DEVICE Tile(const Params& p, const SplitParams& split)
        : p(p), group(split.group), rows(TOKEN ? group : int(p.score.queries) * group), batch(TOKEN ? 0 : blockIdx.z / u32(p.score.kv_heads)),
          kv_head(TOKEN ? blockIdx.z : blockIdx.z % u32(p.score.kv_heads)) {}

    // The rows that exist, of ROWS.
    DEVICE int count() const { return min(rows - int(blockIdx.y) * ROWS, ROWS); }
    // A row that does not exist is taken for the last one.
    DEVICE u32 row(int r) const { return min(int(blockIdx.y) * ROWS + r, rows - 1); }
    DEVICE int query(int r) const { return TOKEN ? 0 : row(r) / u32(group); }
    DEVICE int head(int r) const { return kv_head * group + (TOKEN ? row(r) : row(r) % u32(group)); }
    // Its number among all rows of the output.
    DEVICE int place(int r) const { return (batch * int(p.score.heads) + head(r)) * int(p.score.queries) + query(r); }
};

// The steps of a warp, from `step` on. The first one's elements are sent for before the launches ahead have ended, after which `ready` shares the queries;
// but the values of one of several are sent for then, unless all are PREFETCHED: the launch ahead reads memory too, and waits behind what is sent for.
template <bool PREFETCHED, bool WIDE, typename Ready>
DEVICE void attend(const Memory& memory, float scale, Step<WIDE> coming, const KeyRange (&ranges)[2], int step, int end, Softmax& softmax, Ready ready) {
    const int lane = threadIdx.x % 32;
    const auto has_more = [&] { return !ONE_STEP && step + WARPS < end; };
    const bool late = !PREFETCHED && has_more();
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
        // Two chains take half the time of one.
        float scores[4] = {}, odd[4] = {};
#pragma unroll
        for (int j = 0; j < PIECES; ++j) {
            const Words query = memory.queries[j][lane];
            const Words &one = coming.key[0][j], &other = coming.key[1][j];
            multiply(scores, one.at[0], other.at[0], one.at[1], other.at[1], query.at[0], query.at[1]);
            multiply(odd, one.at[2], other.at[2], one.at[3], other.at[3], query.at[2], query.at[3]);
        }
        if (has_more()) {
            coming.load_keys(step + WARPS);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int key = step * STEP + lane / 4 + i / 2 * 8;
            const bool holds = ranges[i % 2].start <= key && key < ranges[i % 2].end;
            scores[i] = holds ? (scores[i] + odd[i]) * scale : NEVER;
        }
        u32 weights[2];
        softmax.weigh(scores, weights);
        softmax.add(weights, coming.value);
        if (has_more()) {
            coming.load_values(step + WARPS);
        } else {
            break;
        }
    }
}

// A thread block's part of the keys `all`, of which a lane's rows attend `ranges`.
template <bool PREFETCHED, typename Tile, typename Ready>
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

// Puts what warps found for a row on one base, with the newest key's if there is one: gives the base and the sum of weights to `keep_state`, of each 32 elements
// a lane's to `keep`. To be called by a warp, after all of them have shared.
template <typename KeepState, typename Keep>
DEVICE void put_together(const Memory& memory, int row, bool has_newest, KeepState keep_state, Keep keep) {
    const int lane = threadIdx.x % 32;
    float base = has_newest ? memory.newest_scores[row] : NEVER, factors[WARPS];
    const float newest_score = base;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        base = fmaxf(base, memory.bases[w][row]);
    }
    const float shift = Softmax::shift(base), newest = exp2_approximate(newest_score - shift);
    float sum = newest;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        factors[w] = exp2_approximate(memory.bases[w][row] - shift);
        sum = fmaf(memory.sums_of_weights[w][row], factors[w], sum);
    }
    keep_state(base, sum);
#pragma unroll
    for (int i = 0; i < WIDTH / 32; ++i) {
        float total = has_newest ? memory.newest_value[32 * i + lane] * newest : 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            total = fmaf(memory.sums[w][row][32 * i + lane], factors[w], total);
        }
        keep(i, total);
    }
}
