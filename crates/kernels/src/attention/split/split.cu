// Attention of few queries on tensor cores: fast precision, in CUDA C++ for compute capability 8.0 and later.
//
// A thread block has eight rows (a row is a query of one of the heads that share keys) and a part of the keys that they attend; its warps take steps of
// 16 keys in turn, each with a softmax in base 2 of its own, and put their sums together at the end. Keys and values go from device memory into the
// operands of matrix products, those of the next step during this one. A lane loads 16 neighbouring bytes of a row, which in the products stand where its
// operands do: the elements of a dot product are permuted by that, and the columns of the sums. Keys and values are read once; queries and weights
// are rounded to their type.
//
// Macros: Q (float, f16 or bf16), KV (f16 or bf16) and WIDTH (64 or 128, of queries, keys and values).

constexpr int ROWS = 8;             // Of a tile: the columns of a product.
constexpr int STEP = 16;            // Keys of a step.
constexpr int WARPS = 4;
constexpr int PIECES = WIDTH / 32;  // Of 16 bytes, of a key in each of four lanes.
constexpr int CHUNKS = WIDTH / 64;  // Of 16 bytes, of a value in each of eight lanes.
// Powers of two that a score may be above the base of the weights.
constexpr float HEADROOM = 8.0f;
constexpr float LOG2_E = 1.44269504f;

// Three thread blocks fit a multiprocessor, with registers left for those of merge.cu beside them, where the compiler can be told so.
#if __CUDACC_VER_MAJOR__ > 12 || __CUDACC_VER_MINOR__ >= 4
#define RESIDENT __maxnreg__(144)
#else
#define RESIDENT __launch_bounds__(32 * WARPS, 3)
#endif

struct Words {
    u32 at[4];
};

template <bool WIDE>
DEVICE Words load(const KV* from) {
    Words words;
    if constexpr (WIDE) {
        asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words.at[0]), "=r"(words.at[1]), "=r"(words.at[2]), "=r"(words.at[3])
                     : "l"(from)
                     : "memory");
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            words.at[i] = from[2 * i].bits | u32(from[2 * i + 1].bits) << 16;
        }
    }
    return words;
}

DEVICE bool is_wide(const KV* p, i64 stride) { return ((u64(p) | u64(stride * i64(sizeof(KV)))) & 15) == 0; }

// sums += a b, of 16 x 16 and 16 x 8 elements.
#define PRODUCT(TYPE)                                                                                                                                  \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                  \
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                                                                                   \
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))

DEVICE void multiply(float (&sums)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    if constexpr (SAME<KV, bf16>) {
        PRODUCT("bf16");
    } else {
        PRODUCT("f16");
    }
}

DEVICE u32 transpose(u32 words) {
    u32 y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(words));
    return y;
}

// What a lane holds of a step: elements 8 (lane % 4) + 32 i … of keys lane / 4 and 8 further on; elements 8 (lane / 4) + 64 i … of the values of keys
// 2 (lane % 4), the next one, and those 8 further on.
template <bool WIDE>
struct Step {
    // From here on, and from row to row, as the launch has checked: less than 2^31 elements.
    const KV* keys;
    const KV* values;
    int key_step;
    int value_step;
    KeyRange range;
    Words key[2][PIECES];
    Words value[4][CHUNKS];

    DEVICE Step(const KV* k, const KV* v, const Params& p, KeyRange range)
        : keys(k + threadIdx.x % 4 * 8), values(v + threadIdx.x % 32 / 4 * 8), key_step(int(p.score.k.token)), value_step(int(p.v.token)), range(range) {}

    // A key that is not attended stands for the nearest one that is: it has no weight.
    DEVICE int nearest(int key) const { return max(range.start, min(key, range.end - 1)); }

    DEVICE void load_keys(int step) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const KV* row = keys + nearest(step * STEP + threadIdx.x % 32 / 4 + 8 * i) * key_step;
#pragma unroll
            for (int j = 0; j < PIECES; ++j) {
                key[i][j] = load<WIDE>(row + 32 * j);
            }
        }
    }

    DEVICE void load_values(int step) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const KV* row = values + nearest(step * STEP + threadIdx.x % 4 * 2 + i % 2 + i / 2 * 8) * value_step;
#pragma unroll
            for (int j = 0; j < CHUNKS; ++j) {
                value[i][j] = load<WIDE>(row + 64 * j);
            }
        }
    }
};

// A warp's softmax over its steps. A lane has rows 2 (lane % 4) and the next; sums of elements 64 c + 8 (lane / 4) + 2 i and the next, for both.
struct Softmax {
    float base[2];
    float sum[2];
    float sums[CHUNKS][4][4];

    DEVICE void clear() {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            base[r] = NEVER;
            sum[r] = 0.0f;
        }
#pragma unroll
        for (int i = 0; i < CHUNKS * 16; ++i) {
            sums[i / 16][i / 4 % 4][i % 4] = 0.0f;
        }
    }

    // Bases that no score is far above.
    DEVICE void raise(const float (&scores)[4]) {
        float factors[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            float most = fmaxf(scores[r], scores[2 + r]);
#pragma unroll
            for (int lanes = 4; lanes <= 16; lanes *= 2) {
                most = fmaxf(most, __shfl_xor_sync(~0u, most, lanes));
            }
            most = fmaxf(most, base[r]);
            factors[r] = exp2_approximate(base[r] - shift(most));
            base[r] = most;
            sum[r] *= factors[r];
        }
#pragma unroll
        for (int i = 0; i < CHUNKS * 16; ++i) {
            sums[i / 16][i / 4 % 4][i % 4] *= factors[i % 2];
        }
    }

    // What is taken from a row's scores: nothing while no key is attended.
    static DEVICE float shift(float base) { return base == NEVER ? 0.0f : base; }

    // Turns scores into weights, for the two operands of a product.
    DEVICE void weigh(float (&scores)[4], u32 (&weights)[2]) {
        const bool are_high = fmaxf(scores[0], scores[2]) > base[0] + HEADROOM || fmaxf(scores[1], scores[3]) > base[1] + HEADROOM;
        if (__any_sync(~0u, are_high)) {
            raise(scores);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            scores[i] = exp2_approximate(scores[i] - shift(base[i % 2]));
            sum[i % 2] += scores[i];
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            weights[i] = transpose(pack<KV>(scores[2 * i], scores[2 * i + 1]));
        }
    }

    template <typename V>
    DEVICE void add(const u32 (&weights)[2], const V& value) {
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const u32 a = value[0][c].at[i], b = value[1][c].at[i], d = value[2][c].at[i], e = value[3][c].at[i];
                multiply(sums[c][i], __byte_perm(a, b, 0x5410), __byte_perm(a, b, 0x7632), __byte_perm(d, e, 0x5410), __byte_perm(d, e, 0x7632), weights[0],
                         weights[1]);
            }
        }
    }
};

// Shared memory: queries as operands, and what warps found.
struct Memory {
    Words queries[PIECES][32];
    float bases[WARPS][ROWS];
    float sums_of_weights[WARPS][ROWS];
    float sums[WARPS][ROWS][WIDTH + 4];
};

// The rows of a thread block: y counts tiles, z the key heads of all sequences.
struct Tile {
    const Params& p;
    int group;
    int rows;
    int batch;
    int kv_head;

    DEVICE Tile(const SplitParams& split)
        : p(split.attention), group(split.group), rows(int(p.score.queries) * group), batch(blockIdx.z / u32(p.score.kv_heads)),
          kv_head(blockIdx.z % u32(p.score.kv_heads)) {}

    DEVICE bool exists(int r) const { return int(blockIdx.y) * ROWS + r < rows; }
    // A row that does not exist is taken for the last one.
    DEVICE u32 row(int r) const { return min(int(blockIdx.y) * ROWS + r, rows - 1); }
    DEVICE int query(int r) const { return row(r) / u32(group); }
    DEVICE int head(int r) const { return kv_head * group + row(r) % u32(group); }
    // Its number among all rows of the output.
    DEVICE int place(int r) const { return (batch * int(p.score.heads) + head(r)) * int(p.score.queries) + query(r); }
};

// The queries, as a lane's operands: elements of row lane / 4 in the order that a lane has those of a key.
DEVICE void share_queries(Memory& memory, const Tile& tile, const Q* q) {
    for (int i = threadIdx.x; i < PIECES * 32; i += blockDim.x) {
        const int lane = i % 32, r = lane / 4;
        const Q* from = q + row_of(tile.p.score.q, tile.batch, tile.head(r), tile.query(r)) + i / 32 * 32 + lane % 4 * 8;
        Words words;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            words.at[j] = pack<KV>(widen(from[2 * j]), widen(from[2 * j + 1]));
        }
        memory.queries[i / 32][lane] = words;
    }
}

// The steps of a warp, from `step` on. The first one's elements are sent for before the launches ahead have ended.
template <bool WIDE>
DEVICE void attend(Memory& memory, const Tile& tile, const Q* q, Step<WIDE>& coming, const KeyRange (&ranges)[2], int step, int end, Softmax& softmax) {
    const int lane = threadIdx.x % 32;
    if (step < end) {
        coming.load_keys(step);
        coming.load_values(step);
    }
    await_launches();
    admit_launches();
    share_queries(memory, tile, q);
    __syncthreads();
    const float scale = tile.p.score.scale * LOG2_E;
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

extern "C" __global__ void RESIDENT
    attention_split_fast(const Q* q, const KV* k, const KV* v, const void*, const int* positions, const int* lengths, float* values, float* states,
                    const __grid_constant__ SplitParams split) {
    extern __shared__ __align__(16) unsigned char shared[];
    Memory& memory = *reinterpret_cast<Memory*>(shared);
    const Params& p = split.attention;
    const Tile tile(split);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = blockIdx.x, parts = gridDim.x;

    // The keys of a lane's rows, and those that any row attends.
    KeyRange ranges[2], all = {0x7fffffff, 0};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        ranges[r] = attended(p.score, positions, lengths, tile.batch, tile.query(lane % 4 * 2 + r));
        if (ranges[r].start < ranges[r].end) {
            all = {min(all.start, ranges[r].start), max(all.end, ranges[r].end)};
        }
    }
#pragma unroll
    for (int lanes = 1; lanes <= 2; lanes *= 2) {
        all = {min(all.start, __shfl_xor_sync(~0u, all.start, lanes)), max(all.end, __shfl_xor_sync(~0u, all.end, lanes))};
    }
    const u32 before = all.start / STEP, steps = all.start < all.end ? (all.end + STEP - 1) / STEP - before : 0;
    // The first parts have a step more than the others.
    const u32 each = steps / parts, more = steps % parts;
    const int begin = before + each * part + min(u32(part), more), end = begin + each + (part < more ? 1 : 0);

    const KV* keys = k + row_of(p.score.k, tile.batch, tile.kv_head, 0);
    const KV* values_of = v + row_of(p.v, tile.batch, tile.kv_head, 0);
    Softmax softmax;
    softmax.clear();
    if (is_wide(keys, p.score.k.token) && is_wide(values_of, p.v.token)) {
        Step<true> coming(keys, values_of, p, all);
        attend(memory, tile, q, coming, ranges, begin + warp, end, softmax);
    } else {
        Step<false> coming(keys, values_of, p, all);
        attend(memory, tile, q, coming, ranges, begin + warp, end, softmax);
    }
    share(memory, softmax);
    __syncthreads();

    // The warps' sums on one base.
    for (int r = warp; r < ROWS && tile.exists(r); r += WARPS) {
        float base = NEVER, sum = 0.0f, factors[WARPS];
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            base = fmaxf(base, memory.bases[w][r]);
        }
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            factors[w] = exp2_approximate(memory.bases[w][r] - Softmax::shift(base));
            sum = fmaf(memory.sums_of_weights[w][r], factors[w], sum);
        }
        const int at = tile.place(r) * parts + part;
        if (lane == 0) {
            states[2 * at] = base;
            states[2 * at + 1] = sum;
        }
#pragma unroll
        for (int i = 0; i < WIDTH / 32; ++i) {
            float total = 0.0f;
#pragma unroll
            for (int w = 0; w < WARPS; ++w) {
                total = fmaf(memory.sums[w][r][32 * i + lane], factors[w], total);
            }
            values[i64(at) * WIDTH + 32 * i + lane] = total;
        }
    }
}
