// Attention's gradient by its queries on the tensor cores of compute capability 9.0: fast precision, in CUDA C++.
//
// As attention_prefill, a thread block walks over tiles of 128 queries with a running softmax. Beside the scores are the products of the values with the
// gradients of the outputs, and the sums are of keys: what multiplies a sum's terms before the greatest score is known is taken back as in the softmax.
// So keys and values are read once, and the softmax's statistics come out for attention_gradient_keys.
//
// Macros: Q and KV (f16 or bf16, the same) and WIDTH (64 or 128).

DEVICE void copy_all(Memory memory, const Schedule& schedule, Boxes boxes, const Q* q, const KV* k, const KV* v, const Q* dy) {
    const ScoreParams& s = schedule.p.score;
    const View& y = schedule.p.y;
    Copier copier = {memory, int(threadIdx.x / 32 % 4), int(threadIdx.x % 32), 0, false};
    u32 turn = 0;
    for (int round = 0; round < schedule.rounds(); ++round) {
        Tile tile;
        if (!schedule.find(round, tile) || tile.blocks() == 0) {
            continue;
        }
        const int kv_head = tile.head / int(s.heads / s.kv_heads);
        const KV* keys = k + row_of(s.k, tile.batch, kv_head, 0);
        const KV* values = v + row_of(schedule.p.v, tile.batch, kv_head, 0);
        copier.await_own(turn++);
        copier.copy_own(0, q + row_of(s.q, tile.batch, tile.head, 0), s.q.token, tile.first, int(s.queries));
        copier.copy_own(1, dy + row_of(y, tile.batch, tile.head, 0), y.token, tile.first, int(s.queries));
        for (int block = 0; block < tile.blocks(); ++block) {
            const int first = tile.first_key(block);
            // In the order in which they are released: a warp waits for room by the parity of a buffer's turns.
            boxes.add(copier, true, values, schedule.p.v.token, tile, kv_head, first);
            boxes.add(copier, false, keys, s.k.token, tile, kv_head, first);
        }
    }
    copier.finish();
}

// The products of outputs with their gradients, of the thread's two rows.
DEVICE void multiply_outputs(const Computer& computer, const Schedule& schedule, const Tile& tile, const Q* y, const Q* dy, float (&products)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int query = min(tile.first + computer.row(r), int(schedule.p.score.queries) - 1);
        const i64 at = row_of(schedule.p.y, tile.batch, tile.head, query) + computer.thread % 4 * (WIDTH / 4);
        float product = dot_product<WIDTH / 4>(y + at, dy + at);
        product += __shfl_xor_sync(~0u, product, 1);
        products[r] = product + __shfl_xor_sync(~0u, product, 2);
    }
}

struct Differentiation {
    Computer& computer;
    const Tile& tile;
    const KeyRange (&ranges)[2];
    const float (&products)[2];
    Softmax& softmax;
    float (&sums)[WIDTH / 2];
    float scores[BLOCK / 2];
    float gradients[BLOCK / 2];
    u32 weights[BLOCK / 16][4];

    // Turns scores into weights, which are less than sixteen.
    DEVICE void apply_softmax() {
        float greatest[2], parts[4] = {};
        find_greatest(scores, greatest);
        const bool fit = greatest[0] * softmax.scale < softmax.shift[0] + 4.0f && greatest[1] * softmax.scale < softmax.shift[1] + 4.0f;
        if (!__all_sync(~0u, fit)) {
            float factors[2];
            softmax.shrink<0>(greatest, factors);
            rescale(sums, factors);
        }
        const float bases[2] = {softmax.base(0), softmax.base(1)};
#pragma unroll
        for (int i = 0; i < BLOCK / 2; ++i) {
            scores[i] = exp2_approximate(fmaf(scores[i], softmax.scale, -bases[i / 2 % 2]));
            parts[i % 4] += scores[i];
        }
        softmax.sum[0] += parts[0] + parts[1];
        softmax.sum[1] += parts[2] + parts[3];
    }

    // Products of a block, and sums of the one before, which go on until its scores are there.
    template <bool IS_FIRST>
    DEVICE void take(int block) {
        const Memory memory = computer.memory;
        // The same in all lanes, which the compiler does not see: addresses of items take half as many instructions with it.
        const u32 items = __shfl_sync(~0u, computer.items, 0);
        computer.await_item(computer.items + 1);
        computer.await_item(computer.items);
        if constexpr (!IS_FIRST) {
            computer.begin_sums(sums, weights, memory.stage(items - 1));
        }
        computer.begin_scores(scores, 0, memory.stage(items + 1));
        await_products<0>();
        settle(scores);
        settle(sums);
        computer.begin_scores(gradients, 1, memory.stage(items));
        if constexpr (!IS_FIRST) {
            computer.release(memory.empty(computer.items - 1));
        }
        mask(scores, tile.all, tile.first_key(block), computer.column(), ranges);
        apply_softmax();
        await_products<0>();
        settle(gradients);
        computer.release(memory.empty(computer.items));
#pragma unroll
        for (int i = 0; i < BLOCK / 2; ++i) {
            gradients[i] = scores[i] * (gradients[i] - products[i / 2 % 2]);
        }
        computer.narrow(gradients, weights);
        computer.items += 2;
    }

    DEVICE void run(u32 turn) {
        const Memory memory = computer.memory;
        wait(memory.own_full(), turn % 2);
        take<true>(0);
        for (int block = 1; block < tile.blocks(); ++block) {
            take<false>(block);
        }
        computer.release(memory.own_empty());
        computer.begin_sums(sums, weights, memory.stage(computer.items - 1));
        await_products<0>();
        settle(sums);
        computer.release(memory.empty(computer.items - 1));
    }
};

// By a warp: which keys a tile's queries attend.
DEVICE void describe(Queries& known, const Schedule& schedule, const Tile& tile, int first) {
    KeyRange all = {0, 0x7fffffff};
    for (int i = threadIdx.x % 32; i < TILE; i += 32) {
        const int query = min(first + i, int(schedule.p.score.queries) - 1);
        const KeyRange range = attended(schedule.p.score, schedule.positions, schedule.lengths, tile.batch, query);
        known.attended[i] = range;
        all = {max(all.start, range.start), min(all.end, range.end)};
    }
    all = {__reduce_max_sync(~0u, all.start), __reduce_min_sync(~0u, all.end)};
    if (threadIdx.x % 32 == 0) {
        known.all = all;
    }
}

DEVICE void compute_all(Memory memory, const Schedule& schedule, const Q* y, const Q* dy, Q* dq, Queries* tiles) {
    const ScoreParams& s = schedule.p.score;
    Computer computer = {memory, int(threadIdx.x / 128) - 1, int(threadIdx.x % 128), 0};
    u32 turn = 0;
    for (int round = 0; round < schedule.rounds(); ++round) {
        Tile tile;
        if (!schedule.find(round, tile)) {
            continue;
        }
        Softmax softmax = {{NEVER, NEVER}, {0.0f, 0.0f}, s.scale * LOG2_E};
        float sums[WIDTH / 2] = {}, products[2];
        multiply_outputs(computer, schedule, tile, y, dy, products);
        if (tile.blocks() != 0) {
            KeyRange ranges[2];
            find_ranges(schedule, tile, computer, ranges);
            Differentiation{computer, tile, ranges, products, softmax, sums}.run(turn++);
        }
        const int first = tile.first + computer.group * TILE;
        Queries& known = tiles[tile_of(s, tile.batch, tile.head, first)];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int query = tile.first + computer.row(r), queries = int(s.queries);
            const i64 row = (i64(tile.batch) * i64(s.heads) + tile.head) * queries + min(query, queries - 1);
            const float inverse = softmax.inverse(r);
            computer.store_row(sums, r, inverse * s.scale, dq + row * WIDTH, query < queries);
            if (computer.thread % 4 == 0 && first < queries) {
                const bool attends = query < queries && inverse != 0.0f;
                known.start[query - first] = attends ? softmax.shift[r] - log2f(inverse) : -NEVER;
                known.product[query - first] = products[r];
            }
        }
        if (computer.thread < 32 && first < int(s.queries)) {
            describe(known, schedule, tile, first);
        }
    }
}

extern "C" __global__ void __launch_bounds__(384, 1)
    attention_gradient_queries(const Q* q, const KV* k, const KV* v, const int* positions, const int* lengths, const Q* y, const Q* dy, Q* dq,
                               Queries* tiles, unsigned char* maps, const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const Memory memory = {shared_address(shared)};
    memory.prepare();
    if (blockIdx.x == 0 && threadIdx.x < 32) {
        make_maps(maps, memory.base + HEADER - 2 * MAP, queries_of(q, p.score), outputs_of(dy, p), TILE);
    }
    const Boxes boxes = {map_keys(memory, maps + 2 * MAP, k, v, p)};
    const Schedule schedule(p, positions, lengths);
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        copy_all(memory, schedule, boxes, q, k, v, dy);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        compute_all(memory, schedule, y, dy, dq, tiles);
    }
}
