// Attention of few queries on tensor cores: see part.cu.
//
// Macros: Q (float, f16 or bf16), KV and WIDTH.

// The queries as operands.
DEVICE void share_queries(Memory& memory, const Tile<false>& tile, const Q* q) {
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

extern "C" __global__ void CLUSTERED RESIDENT
    attention_split_fast(const Q* q, const KV* k, const KV* v, const void*, const int* positions, const int* lengths, Result* result,
                    const __grid_constant__ DELIVERING(AttentionSplitParams) params) {
    extern __shared__ __align__(16) unsigned char shared[];
    Memory& memory = *reinterpret_cast<Memory*>(shared);
    Received& received = *reinterpret_cast<Received*>(shared + sizeof(Memory));
    const Params& p = params.attention;
    const Tile<false> tile(p, params.split);
    expect_parts(received, tile);
    const int lane = threadIdx.x % 32;

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

    Softmax softmax;
    attend<PREFETCHED>(memory, tile, k, v, all, ranges, softmax, [&] {
        await_launches();
        admit_launches();
        share_queries(memory, tile, q);
    });
    share(memory, softmax);
    __syncthreads();
    finish(memory, received, tile, false, result, outbox(params));
}
