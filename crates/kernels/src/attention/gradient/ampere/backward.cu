// Attention's gradient on tensor cores: fast precision, in CUDA C++. First a thread block for each 64 queries, then one for each 64 keys. Scores are computed
// three times and never leave the registers; weights and their gradients are rounded to KV before they are multiplied.

extern "C" __global__ void __launch_bounds__(THREADS, WIDTH == 64 ? 3 : 2)
    attention_backward_queries(const KV* q, const KV* k, const KV* v, const int* positions, const int* lengths, const KV* y, const KV* dy, KV* dq,
                               float2* statistics, const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char shared[];
    Memory& memory = *reinterpret_cast<Memory*>(shared);
    const ScoreParams& s = p.score;
    // The last queries may attend most keys: they begin.
    const Tile tile(gridDim.x - 1 - blockIdx.x, u32(s.heads), u32(s.batch));
    const int kv_head = tile.head / int(s.heads / s.kv_heads), queries = int(s.queries), count = min(ROWS, queries - tile.first);
    const i64 row = (i64(tile.batch) * i64(s.heads) + tile.head) * queries + tile.first;
    const u32 own[2] = {shared_address(memory.own[0]), shared_address(memory.own[1])};
    const auto other = [&](int stage, int which) { return shared_address(memory.teams[0].others[stage][which]); };

    copy_rows<ROWS>(own[0], q + row_of(s.q, tile.batch, tile.head, 0), s.q.token, tile.first, {0, queries});
    copy_rows<ROWS>(own[1], dy + row_of(p.y, tile.batch, tile.head, 0), p.y.token, tile.first, {0, queries});
    // The product of each output with its gradient, by two threads.
    {
        const int r = threadIdx.x / 2, begin = threadIdx.x % 2 * (WIDTH / 2);
        const i64 at = row_of(p.y, tile.batch, tile.head, tile.first + r) + begin;
        float product = r < count ? dot_product<WIDTH / 2>(y + at, dy + at) : 0.0f;
        product += __shfl_xor_sync(~0u, product, 1);
        memory.products[r] = product;
    }
    KeyRange ranges[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int in_tile = own_row() + 8 * r;
        ranges[r] = in_tile < count ? attended(s, positions, lengths, tile.batch, tile.first + in_tile) : KeyRange{0, 0};
    }
    const KeyRange one = ranges[0].start < ranges[0].end ? ranges[0] : ranges[1], two = ranges[1].start < ranges[1].end ? ranges[1] : one;
    const KeyRange all = united(memory, {min(one.start, two.start), max(one.end, two.end)});
    const int before = all.start / BLOCK, blocks = all.start < all.end ? (all.end + BLOCK - 1) / BLOCK - before : 0;
    const KV* keys = k + row_of(s.k, tile.batch, kv_head, 0);
    const KV* values = v + row_of(p.v, tile.batch, kv_head, 0);
    const auto holds = [&](int block, int i) {
        const int key = (before + block) * BLOCK + i / 4 * 8 + own_column() + i % 2;
        return ranges[i / 2 % 2].start <= key && key < ranges[i / 2 % 2].end;
    };
    const float scale = s.scale * LOG2_E;

    float base[2] = {NEVER, NEVER}, sum[2] = {};
    Sums<BLOCK> scores;
    walk<1>(
        blocks, [&](int block, int stage) { copy_rows<BLOCK>(other(stage, 0), keys, s.k.token, (before + block) * BLOCK, all); },
        [&](int block, int stage) {
            dot_products(scores, own[0], other(stage, 0));
            float most[2] = {base[0], base[1]};
#pragma unroll
            for (int i = 0; i < BLOCK / 2; ++i) {
                float& score = scores.at[i / 4][i % 4];
                score = holds(block, i) ? score * scale : NEVER;
                most[i / 2 % 2] = fmaxf(most[i / 2 % 2], score);
            }
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                most[r] = fmaxf(most[r], __shfl_xor_sync(~0u, most[r], 1));
                most[r] = fmaxf(most[r], __shfl_xor_sync(~0u, most[r], 2));
                sum[r] *= most[r] == NEVER ? 1.0f : exp2_approximate(base[r] - most[r]);
                base[r] = most[r];
            }
#pragma unroll
            for (int i = 0; i < BLOCK / 2; ++i) {
                const float score = scores.at[i / 4][i % 4];
                sum[i / 2 % 2] += score == NEVER ? 0.0f : exp2_approximate(score - base[i / 2 % 2]);
            }
        });
    // Where a row's weights begin, in powers of two; nowhere, if it attends no key.
    float begin[2], product[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        sum[r] += __shfl_xor_sync(~0u, sum[r], 1);
        sum[r] += __shfl_xor_sync(~0u, sum[r], 2);
        begin[r] = base[r] == NEVER ? -NEVER : base[r] + log2f(sum[r]);
        const int in_tile = own_row() + 8 * r;
        product[r] = memory.products[in_tile];
        if (lane() % 4 == 0 && in_tile < count) {
            statistics[row + in_tile] = make_float2(begin[r], product[r]);
        }
    }

    Sums<BLOCK> gradients;
    Sums<WIDTH> result;
    result.clear();
    walk<1>(
        blocks,
        [&](int block, int stage) {
            copy_rows<BLOCK>(other(stage, 0), keys, s.k.token, (before + block) * BLOCK, all);
            copy_rows<BLOCK>(other(stage, 1), values, p.v.token, (before + block) * BLOCK, all);
        },
        [&](int block, int stage) {
            dot_products(scores, own[0], other(stage, 0));
            dot_products(gradients, own[1], other(stage, 1));
#pragma unroll
            for (int i = 0; i < BLOCK / 2; ++i) {
                const float weight = exp2_approximate(fmaf(scores.at[i / 4][i % 4], scale, -begin[i / 2 % 2]));
                float& gradient = gradients.at[i / 4][i % 4];
                gradient = holds(block, i) ? weight * (gradient - product[i / 2 % 2]) : 0.0f;
            }
            add_rows(result, gradients, other(stage, 0));
        });
    store_rows(dq + row * WIDTH, result, s.scale, count);
}

extern "C" __global__ void __launch_bounds__(2 * THREADS, 1)
    attention_backward_keys(const KV* q, const KV* k, const KV* v, const int* positions, const int* lengths, const KV* dy, const float2* statistics, KV* dk,
                            KV* dv, const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char shared[];
    Memory& memory = *reinterpret_cast<Memory*>(shared);
    const ScoreParams& s = p.score;
    // The first keys may be attended by most queries: they begin.
    const Tile tile(blockIdx.x, u32(s.kv_heads), u32(s.batch));
    const int group = int(s.heads / s.kv_heads), queries = int(s.queries), keys = int(s.keys), count = min(ROWS, keys - tile.first);
    const u32 own[2] = {shared_address(memory.own[0]), shared_address(memory.own[1])};
    Stages& stages = memory.teams[team()];
    const auto other = [&](int stage, int which) { return shared_address(stages.others[stage][which]); };

    if (team() == 0) {
        copy_rows<ROWS>(own[0], k + row_of(s.k, tile.batch, tile.head, 0), s.k.token, tile.first, {0, keys});
    } else {
        copy_rows<ROWS>(own[1], v + row_of(p.v, tile.batch, tile.head, 0), p.v.token, tile.first, {0, keys});
    }
    end_copies();
    // The queries that attend any of the keys.
    KeyRange attending = {0x7fffffff, 0};
    for (int t = threadIdx.x; t < queries; t += 2 * THREADS) {
        const KeyRange range = attended(s, positions, lengths, tile.batch, t);
        if (max(range.start, tile.first) < min(range.end, tile.first + count)) {
            attending = {min(attending.start, t), t + 1};
        }
    }
    await_copies<0>();
    const KeyRange all = united(memory, attending);
    const int before = all.start / BLOCK, blocks = all.start < all.end ? (all.end + BLOCK - 1) / BLOCK - before : 0;
    const float scale = s.scale * LOG2_E;

    Sums<BLOCK> weights, gradients;
    Sums<WIDTH> of_key, of_value;
    of_key.clear();
    of_value.clear();
    walk<2>(
        (blocks * group + 1 - team()) / 2,
        [&](int turn, int stage) {
            const int item = 2 * turn + team();
            const int head = tile.head * group + item / blocks, first = (before + item % blocks) * BLOCK;
            copy_rows<BLOCK>(other(stage, 0), q + row_of(s.q, tile.batch, head, 0), s.q.token, first, all);
            copy_rows<BLOCK>(other(stage, 1), dy + row_of(p.y, tile.batch, head, 0), p.y.token, first, all);
            if (member() < BLOCK) {
                const int t = first + member();
                float4 query = make_float4(-NEVER, 0.0f, 0.0f, 0.0f);
                if (all.start <= t && t < all.end) {
                    const float2 found = statistics[(i64(tile.batch) * i64(s.heads) + head) * queries + t];
                    const KeyRange range = attended(s, positions, lengths, tile.batch, t);
                    query = make_float4(found.x, found.y, __int_as_float(range.start), __int_as_float(range.end));
                }
                stages.queries[stage][member()] = query;
            }
        },
        [&](int, int stage) {
            dot_products(weights, own[0], other(stage, 0));
            dot_products(gradients, own[1], other(stage, 1));
#pragma unroll
            for (int i = 0; i < BLOCK / 2; ++i) {
                const float4 query = stages.queries[stage][i / 4 * 8 + own_column() + i % 2];
                const int key = tile.first + own_row() + i / 2 % 2 * 8;
                const bool holds = __float_as_int(query.z) <= key && key < __float_as_int(query.w);
                float &weight = weights.at[i / 4][i % 4], &gradient = gradients.at[i / 4][i % 4];
                weight = holds ? exp2_approximate(fmaf(weight, scale, -query.x)) : 0.0f;
                gradient = holds ? weight * (gradient - query.y) : 0.0f;
            }
            add_rows(of_value, weights, other(stage, 1));
            add_rows(of_key, gradients, other(stage, 0));
        });
    // The second team's sums come to the first.
    float* sums = reinterpret_cast<float*>(memory.teams) + member();
    __syncthreads();
    if (team() == 1) {
#pragma unroll
        for (int i = 0; i < WIDTH / 2; ++i) {
            sums[i * THREADS] = of_key.at[i / 4][i % 4];
            sums[(WIDTH / 2 + i) * THREADS] = of_value.at[i / 4][i % 4];
        }
    }
    __syncthreads();
    if (team() == 1) {
        return;
    }
#pragma unroll
    for (int i = 0; i < WIDTH / 2; ++i) {
        of_key.at[i / 4][i % 4] += sums[i * THREADS];
        of_value.at[i / 4][i % 4] += sums[(WIDTH / 2 + i) * THREADS];
    }
    const i64 row = (i64(tile.batch) * i64(s.kv_heads) + tile.head) * keys + tile.first;
    store_rows(dk + row * WIDTH, of_key, s.scale, count);
    store_rows(dv + row * WIDTH, of_value, 1.0f, count);
}
