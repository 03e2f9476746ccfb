// Attention of one new token on tensor cores, which goes into the caches first: see split/part.cu, and decode.metal for what is done.
//
// No part of the keys has the newest one: the last part adds it.
//
// Macros: Q (float, f16 or bf16), KV and WIDTH.

// Beside part.cu's shared memory: the newest key as the cache holds it.
struct Shared {
    Rotation rotation;
    float key[WIDTH];
};

static_assert(WIDTH <= 32 * WARPS && PIECES <= WARPS);

// The scores of the newest key, which is among those attended if `is_attended`.
DEVICE void score_newest(Memory& memory, const Shared& own, int rows, float scale, bool is_attended) {
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int r = threadIdx.x / 32; r < rows; r += WARPS) {
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
                          const float* frequencies, Result* result, const __grid_constant__ DELIVERING(DecodeSplitParams) p, u32* error_flag) {
    extern __shared__ __align__(16) unsigned char shared[];
    Memory& memory = *reinterpret_cast<Memory*>(shared);
    Received& received = *reinterpret_cast<Received*>(shared + sizeof(Memory));
    Shared& own = *reinterpret_cast<Shared*>(shared + sizeof(Memory) + RECEIVED);
    const TokenParams& token = p.decode.token;
    const Params& attention = p.decode.attention;
    const ScoreParams& score = attention.score;
    const int position = positions[0], e = threadIdx.x, warp = e / 32, lane = e % 32;
    const float frequency = own_frequency(token, frequencies);
    const Tile<true> tile(attention, p.split);
    expect_parts(received, tile);
    const bool fits = position >= 0 && position < int(score.keys), is_last = blockIdx.x == gridDim.x - 1, appends = is_last && fits && e < WIDTH;
    const KeyRange range = attended(score, positions, nullptr, 0, 0), stored = {range.start, fits ? min(range.end, position) : range.end};
    const KeyRange ranges[2] = {stored, stored};
    Softmax softmax;
    attend<PREFETCHED>(memory, tile, key_cache, value_cache, stored, ranges, softmax, [&] {
        // The queries as operands: of each of the first threads eight elements of row lane / 4.
        Eight query;
        query.place(token, queries + row_of(score.q, 0, tile.head(lane / 4), 0), warp * 32 + lane % 4 * 8);
        Newest newest;
        newest.place(token, 0, tile.kv_head, new_key, new_value, e);
        KV* const key_to = key_cache + row_of(score.k, 0, tile.kv_head, position) + e;
        KV* const value_to = value_cache + row_of(attention.v, 0, tile.kv_head, position) + e;
        await_launches();
        admit_launches();
        if (warp < PIECES) {
            query.load(token);
        }
        if (appends) {
            newest.load(token);
        }
        // While these are in flight.
        share_rotation(own.rotation, token, position, frequency);
        __syncthreads();
        if (warp < PIECES) {
            query.rotate(own.rotation, token, memory.queries[warp][lane].at);
        }
        // The newest key and value: an element of each of the first threads. One block of rows puts them into the caches.
        if (appends) {
            KV key, value;
            store(&key, newest.key(own.rotation, token));
            store(&value, newest.value);
            own.key[e] = widen(key);
            memory.newest_value[e] = widen(value);
            if (blockIdx.y == 0) {
                *key_to = key;
                *value_to = value;
            }
        }
    });
    share(memory, softmax);
    if (is_last) {
        score_newest(memory, own, tile.count(), score.scale * LOG2_E, fits);
    }
    __syncthreads();
    finish(memory, received, tile, is_last, result, outbox(p));
    if (!fits && blockIdx.x + blockIdx.y + blockIdx.z + threadIdx.x == 0) {
        atomicMax(error_flag, ~0u);
    }
}
