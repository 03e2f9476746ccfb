// Attention of one new token on tensor cores, which goes into the caches first: see split/part.cu, and decode.metal for what is done.
//
// No part of the keys has the newest one: the last part adds it.
//
// Macros: Q (float, f16 or bf16), KV and WIDTH.

// The queries as operands.
DEVICE void share_queries(Memory& memory, const Rotation& rotation, const Tile& tile, const TokenParams& p, const Q* queries) {
    for (int i = threadIdx.x; i < PIECES * 32; i += blockDim.x) {
        const int lane = i % 32, first = i / 32 * 32 + lane % 4 * 8;
        const Q* row = queries + row_of(tile.p.score.q, 0, tile.head(lane / 4), 0);
        Eight elements;
        elements.load(p, row, first);
        elements.rotate(rotation, p, first, memory.queries[i / 32][lane].at);
    }
}

// Beside part.cu's shared memory: the newest key as the cache holds it.
struct Shared {
    Rotation rotation;
    float key[WIDTH];
};

static_assert(WIDTH <= 32 * WARPS);

// Puts the newest key and value into the caches, if this is the thread block that does, and shares them: an element of each of the first threads.
DEVICE void append(Memory& memory, Shared& own, const Tile& tile, const TokenParams& p, KV* keys, KV* values, Newest newest, int position) {
    const int e = threadIdx.x;
    KV key, value;
    store(&key, rotated(own.rotation, p, newest.key, e));
    store(&value, newest.value);
    own.key[e] = widen(key);
    memory.newest_value[e] = widen(value);
    if (blockIdx.y == 0) {
        keys[row_of(tile.p.score.k, 0, tile.kv_head, position) + e] = key;
        values[row_of(tile.p.v, 0, tile.kv_head, position) + e] = value;
    }
}

// The scores of the newest key, which is among those attended if `is_attended`.
DEVICE void score_newest(Memory& memory, const Shared& own, float scale, bool is_attended) {
    const int lane = threadIdx.x % 32;
    for (int r = threadIdx.x / 32; r < ROWS; r += WARPS) {
        float sum = 0.0f;
        // A word of the query for each of the first lanes.
        if (lane < PIECES * 4 && is_attended) {
            const Words query = memory.queries[lane / 4][4 * r + lane % 4];
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                sum = fmaf(widen(KV{(unsigned short)(query.at[i / 2] >> 16 * (i % 2))}), own.key[8 * lane + i], sum);
            }
        }
#pragma unroll
        for (int lanes = 1; lanes <= 8; lanes *= 2) {
            sum += __shfl_xor_sync(~0u, sum, lanes);
        }
        if (lane == 0) {
            memory.newest_scores[r] = is_attended ? sum * scale : NEVER;
        }
    }
}

extern "C" __global__ void CLUSTERED RESIDENT
    attention_decode_fast(KV* key_cache, KV* value_cache, const Q* queries, const Q* new_key, const Q* new_value, const int* positions,
                          const float* frequencies, Result* result, const __grid_constant__ DecodeSplitParams p, u32* error_flag) {
    extern __shared__ __align__(16) unsigned char shared[];
    Memory& memory = *reinterpret_cast<Memory*>(shared);
    Shared& own = *reinterpret_cast<Shared*>(shared + sizeof(Memory));
    const DecodeParams& decode = p.decode;
    const Tile tile(decode.attention, p.split);
    const ScoreParams& score = decode.attention.score;
    const int position = positions[0];
    const bool fits = position >= 0 && position < int(score.keys), is_last = blockIdx.x == gridDim.x - 1;
    const KeyRange range = attended(score, positions, nullptr, 0, 0), stored = {range.start, fits ? min(range.end, position) : range.end};
    const KeyRange ranges[2] = {stored, stored};
    Softmax softmax;
    attend<PREFETCHED>(memory, tile, key_cache, value_cache, stored, ranges, softmax, [&] {
        share_rotation(own.rotation, decode.token, position, frequencies);
        __syncthreads();
        await_launches();
        admit_launches();
        const bool appends = is_last && fits && threadIdx.x < WIDTH;
        Newest newest;
        if (appends) {
            newest.load(decode.token, 0, tile.kv_head, new_key, new_value, threadIdx.x);
        }
        share_queries(memory, own.rotation, tile, decode.token, queries);
        if (appends) {
            append(memory, own, tile, decode.token, key_cache, value_cache, newest, position);
        }
    });
    share(memory, softmax);
    if (is_last) {
        score_newest(memory, own, score.scale * LOG2_E, fits);
    }
    __syncthreads();
    if (is_last) {
        finish<true>(memory, tile, result);
    } else {
        finish<false>(memory, tile, result);
    }
    if (!fits && blockIdx.x + blockIdx.y + blockIdx.z + threadIdx.x == 0) {
        atomicMax(error_flag, ~0u);
    }
}
