// Attention of one new token on tensor cores, which goes into the caches first: see split/part.cu, and decode.metal for what is done.
//
// No part of the keys has the newest one: the last part adds it.
//
// Macros: Q (float, f16 or bf16), KV and WIDTH.

// How rows turn, and the newest key as the cache holds it.
struct Turn {
    float cosines[WIDTH / 2];
    float sines[WIDTH / 2];
    float key[WIDTH];
};

// Element `e` of a row that turns.
DEVICE float turned(const Turn& turn, const DecodeParams& p, const Q* row, int e) {
    const int half = p.half_dim;
    if (e >= 2 * half) {
        return widen(row[e]);
    }
    const int pair = p.interleaved ? e / 2 : e % half, first = p.interleaved ? 2 * pair : pair, second = p.interleaved ? first + 1 : first + half;
    const float u = widen(row[first]), v = widen(row[second]), cosine = turn.cosines[pair], sine = turn.sines[pair];
    return e == first ? u * cosine - v * sine : v * cosine + u * sine;
}

// The queries as operands.
DEVICE void share_queries(Memory& memory, const Turn& turn, const Tile& tile, const DecodeParams& p, const Q* queries) {
    for (int i = threadIdx.x; i < PIECES * 32; i += blockDim.x) {
        const int lane = i % 32, first = i / 32 * 32 + lane % 4 * 8;
        const Q* row = queries + row_of(tile.p.score.q, 0, tile.head(lane / 4), 0);
        Words words;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            words.at[j] = pack<KV>(turned(turn, p, row, first + 2 * j), turned(turn, p, row, first + 2 * j + 1));
        }
        memory.queries[i / 32][lane] = words;
    }
}

// Puts the newest key and value into the caches, if this is the thread block that does, and shares them.
DEVICE void append(Memory& memory, Turn& turn, const Tile& tile, const DecodeParams& p, KV* keys, KV* values, const Q* new_key, const Q* new_value,
                   int position) {
    KV* key = keys + row_of(tile.p.score.k, 0, tile.kv_head, position);
    KV* value = values + row_of(tile.p.v, 0, tile.kv_head, position);
    const Q* from = new_key + row_of(p.new_key, 0, tile.kv_head, 0);
    const Q* value_from = new_value + row_of(p.new_value, 0, tile.kv_head, 0);
    for (int e = threadIdx.x; e < WIDTH; e += blockDim.x) {
        KV element, value_element;
        store(&element, turned(turn, p, from, e));
        store(&value_element, widen(value_from[e]));
        turn.key[e] = widen(element);
        memory.newest_value[e] = widen(value_element);
        if (blockIdx.y == 0) {
            key[e] = element;
            value[e] = value_element;
        }
    }
}

// The scores of the newest key, which is among those attended if `is_attended`.
DEVICE void score_newest(Memory& memory, const Turn& turn, float scale, bool is_attended) {
    const int lane = threadIdx.x % 32;
    for (int r = threadIdx.x / 32; r < ROWS; r += WARPS) {
        float sum = 0.0f;
        // A word of the query for each of the first lanes.
        if (lane < PIECES * 4 && is_attended) {
            const Words query = memory.queries[lane / 4][4 * r + lane % 4];
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                sum = fmaf(widen(KV{(unsigned short)(query.at[i / 2] >> 16 * (i % 2))}), turn.key[8 * lane + i], sum);
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
                          const float* frequencies, Result* result, const __grid_constant__ DecodeSplitParams p, u32* refusal) {
    extern __shared__ __align__(16) unsigned char shared[];
    Memory& memory = *reinterpret_cast<Memory*>(shared);
    Turn& turn = *reinterpret_cast<Turn*>(shared + sizeof(Memory));
    const DecodeParams& decode = p.decode;
    const Tile tile(decode.attention, p.split);
    const ScoreParams& score = decode.attention.score;
    const int position = positions[0];
    const bool fits = position >= 0 && position < int(score.keys), is_last = blockIdx.x == gridDim.x - 1;
    const KeyRange range = attended(score, positions, nullptr, 0, 0), stored = {range.start, fits ? min(range.end, position) : range.end};
    for (int i = threadIdx.x; i < decode.half_dim; i += blockDim.x) {
        const float angle = float(position) * frequencies[i];
        turn.cosines[i] = cosf(angle);
        turn.sines[i] = sinf(angle);
    }
    __syncthreads();

    const KeyRange ranges[2] = {stored, stored};
    Softmax softmax;
    attend<EARLY>(memory, tile, key_cache, value_cache, stored, ranges, softmax, [&] {
        await_launches();
        admit_launches();
        share_queries(memory, turn, tile, decode, queries);
        if (is_last && fits) {
            append(memory, turn, tile, decode, key_cache, value_cache, new_key, new_value, position);
        }
    });
    share(memory, softmax);
    if (is_last) {
        score_newest(memory, turn, score.scale * LOG2_E, fits);
    }
    __syncthreads();
    if (is_last) {
        finish<true>(memory, tile, result);
    } else {
        finish<false>(memory, tile, result);
    }
    if (!fits && blockIdx.x + blockIdx.y + blockIdx.z + threadIdx.x == 0) {
        atomicMax(refusal, ~0u);
    }
}
