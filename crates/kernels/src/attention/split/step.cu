// Steps of 16 keys on tensor cores, each a warp's, with its softmax: fast precision, in CUDA C++ for compute capability 8.0 and later.
//
// Keys and values go from device memory into the operands of matrix products, those of the next step during this one. A lane loads 16 neighbouring bytes
// of a row, which in the products stand where its operands do: the elements of a dot product are permuted by that, and the columns of the sums.
// Queries and weights are rounded to the type of the keys.
//
// Macros: KV (f16 or bf16) and WIDTH (64 or 128, of queries, keys and values). The host gives WARPS, those of a thread block.

constexpr int ROWS = 8;             // Of a tile: the columns of a product.
constexpr int STEP = 16;            // Keys of a step.
constexpr int PIECES = WIDTH / 32;  // Of 16 bytes, of a key in each of four lanes.
constexpr int CHUNKS = WIDTH / 64;  // Of 16 bytes, of a value in each of eight lanes.
// Powers of two that a score may be above the base of the weights.
constexpr float HEADROOM = 8.0f;

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
