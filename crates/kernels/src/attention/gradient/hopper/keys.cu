// Attention's gradient by its keys and values on the tensor cores of compute capability 9.0: fast precision, in CUDA C++.
//
// A thread block has 128 keys of one head, and walks over the queries that attend them, 64 at a time, of all heads that share the keys. One warpgroup copies
// queries, what is known of them, and the gradients of their outputs to a ring of buffers, or has the unit for it do so. The other two have 64 keys each:
// scores, whose rows are keys, and products of values and gradients by wgmma; weights from what attention_gradient_queries found; sums by wgmma.
//
// Macros: Q and KV (f16 or bf16, the same) and WIDTH (64 or 128).

struct Header {
    unsigned char barriers[256];
    int range[2];
    Queries items[STAGES / 2];

    DEVICE Queries& queries(u32 item) { return items[item / 2 % (STAGES / 2)]; }
};
static_assert(sizeof(Header) <= HEADER, "the header is too small");
static_assert(BLOCK == TILE, "what is known of queries comes with them");

// The keys of a thread block, and the queries that attend them.
struct Tile {
    int batch;
    int head;
    int first;
    KeyRange queries;
    // Heads of queries that share the keys.
    int group;

    DEVICE int blocks() const { return queries.start < queries.end ? (queries.end - 1) / BLOCK - queries.start / BLOCK + 1 : 0; }
    DEVICE int turns() const { return blocks() * group; }
};

// To be called by all threads.
DEVICE Tile find_tile(Header& header, const ScoreParams& s, const int* positions, const int* lengths) {
    // The first keys may be attended by most queries: they begin.
    const int heads = int(s.kv_heads), all_heads = heads * int(s.batch), keys = int(s.keys);
    Tile tile = {int(blockIdx.x) % all_heads / heads, int(blockIdx.x) % heads, int(blockIdx.x) / all_heads * ROWS, {0x7fffffff, 0}, int(s.heads) / heads};
    if (threadIdx.x == 0) {
        header.range[0] = 0x7fffffff;
        header.range[1] = 0;
    }
    __syncthreads();
    for (int query = threadIdx.x; query < int(s.queries); query += blockDim.x) {
        const KeyRange range = attended(s, positions, lengths, tile.batch, query);
        if (max(range.start, tile.first) < min(range.end, min(tile.first + ROWS, keys))) {
            tile.queries = {min(tile.queries.start, query), query + 1};
        }
    }
    if (tile.queries.start < tile.queries.end) {
        atomicMin(&header.range[0], tile.queries.start);
        atomicMax(&header.range[1], tile.queries.end);
    }
    __syncthreads();
    tile.queries = {header.range[0], header.range[1]};
    return tile;
}

// Queries and the gradients of their outputs come as items in the order in which they are released: the gradients first.
struct Differentiation {
    Computer& computer;
    Header& header;
    const Tile& tile;
    float scale;
    float (&of_keys)[WIDTH / 2];
    float (&of_values)[WIDTH / 2];
    float scores[BLOCK / 2];
    float gradients[BLOCK / 2];
    u32 weights[BLOCK / 16][4];
    u32 slopes[BLOCK / 16][4];

    // Of the thread's rows, which are keys.
    DEVICE void weigh(const Queries& queries) {
#pragma unroll
        for (int i = 0; i < BLOCK / 2; ++i) {
            scores[i] = exp2_approximate(fmaf(scores[i], scale, -queries.start[i / 4 * 8 + computer.column() + i % 2]));
        }
        if (tile.first < queries.all.start || queries.all.end < tile.first + ROWS) {
#pragma unroll
            for (int i = 0; i < BLOCK / 2; ++i) {
                const KeyRange range = queries.attended[i / 4 * 8 + computer.column() + i % 2];
                const int key = tile.first + computer.row(i / 2 % 2);
                scores[i] = range.start <= key && key < range.end ? scores[i] : 0.0f;
            }
        }
        computer.narrow(scores, weights);
    }

    DEVICE void differentiate(const Queries& queries) {
#pragma unroll
        for (int i = 0; i < BLOCK / 2; ++i) {
            const u32 pair = weights[i / 8][i / 2 % 4];
            const float product = queries.product[i / 4 * 8 + computer.column() + i % 2];
            gradients[i] = (i % 2 == 0 ? low(pair) : high(pair)) * (gradients[i] - product);
        }
        computer.narrow(gradients, slopes);
    }

    // An item's weights are there, and its sums of values under way. They go on while the gradients of its weights and the next scores are made, and its sums
    // of keys while the next weights are found.
    template <bool IS_FIRST, bool IS_LAST>
    DEVICE void take() {
        const Memory memory = computer.memory;
        const u32 item = computer.items;
        computer.begin_scores(gradients, 1, memory.stage(item));
        if constexpr (!IS_LAST) {
            computer.begin_scores(scores, 0, computer.await_item(item + 3));
        }
        await_products<IS_LAST ? 0 : 1>();
        settle(gradients);
        settle(of_values);
        computer.release(memory.empty(item));
        differentiate(header.queries(item));
        computer.begin_sums(of_keys, slopes, memory.stage(item + 1));
        if constexpr (!IS_LAST) {
            await_products<1>();
            settle(scores);
            weigh(header.queries(item + 2));
            computer.begin_sums(of_values, weights, computer.await_item(item + 2));
            await_products<1>();
            settle(of_keys);
            computer.release(memory.empty(item + 1));
        }
        computer.items += 2;
    }

    DEVICE void run() {
        wait(computer.memory.own_full(), 0);
        computer.begin_scores(scores, 0, computer.await_item(1));
        await_products<0>();
        settle(scores);
        weigh(header.queries(0));
        computer.begin_sums(of_values, weights, computer.await_item(0));
        if (tile.turns() == 1) {
            take<true, true>();
        } else {
            take<true, false>();
            for (int turn = 2; turn < tile.turns(); ++turn) {
                take<false, false>();
            }
            take<false, true>();
        }
        await_products<0>();
        settle(of_keys);
    }
};

// Calls a function with the head and the first query of each of the tile's blocks.
template <typename Take>
DEVICE void for_each_block(const Tile& tile, Take take) {
    for (int head = tile.head * tile.group; head < (tile.head + 1) * tile.group; ++head) {
        for (int first = tile.queries.start / BLOCK * BLOCK; first < tile.queries.end; first += BLOCK) {
            take(head, first);
        }
    }
}

// By a thread: has the unit that copies fill the ring.
DEVICE void send_all(Memory memory, Header& header, const Tile& tile, const ScoreParams& s, const unsigned char* maps, const Queries* tiles) {
    u32 item = 0;
    await_map(maps);
    await_map(maps + MAP);
    for_each_block(tile, [&](int head, int first) {
        for (int of_query = 0; of_query < 2; ++of_query, ++item) {
            const u32 full = memory.full(item);
            wait(memory.empty(item), item / STAGES % 2 ^ 1);
            expect(full, 2 * WIDTH * BLOCK + (of_query ? sizeof(Queries) : 0));
            copy_tile<BLOCK>(memory.stage(item), of_query ? maps : maps + MAP, tile.batch, head, first, full);
            if (of_query) {
                copy_bulk(shared_address(&header.queries(item)), tiles + tile_of(s, tile.batch, head, first), sizeof(Queries), full);
            }
        }
    });
}

DEVICE void copy_all(Memory memory, Header& header, const Tile& tile, const Params& p, const Q* q, const KV* k, const KV* v, const Q* dy,
                     const Queries* tiles, const unsigned char* maps) {
    const ScoreParams& s = p.score;
    Copier copier = {memory, int(threadIdx.x / 32 % 4), int(threadIdx.x % 32), 0, false};
    copier.copy_own(0, k + row_of(s.k, tile.batch, tile.head, 0), s.k.token, tile.first, int(s.keys));
    copier.copy_own(1, v + row_of(p.v, tile.batch, tile.head, 0), p.v.token, tile.first, int(s.keys));
    if (queries_of(q, s).are_mapped() && outputs_of(dy, p).are_mapped()) {
        copier.finish();
        if (threadIdx.x % 128 == 0) {
            send_all(memory, header, tile, s, maps, tiles);
        }
        return;
    }
    for_each_block(tile, [&](int head, int first) {
        copier.copy_item(dy + row_of(p.y, tile.batch, head, 0), p.y.token, first, tile.queries);
        copier.copy_item(q + row_of(s.q, tile.batch, head, 0), s.q.token, first, tile.queries, [&] {
            const Queries* from = tiles + tile_of(s, tile.batch, head, first);
            const u32 to = shared_address(&header.queries(copier.items));
            for (int i = copier.lane; i < int(sizeof(Queries) / 16); i += 32) {
                copy_async(to + 16 * i, reinterpret_cast<const uint4*>(from) + i);
            }
        });
    });
    copier.finish();
}

DEVICE void compute_all(Memory memory, Header& header, const Tile& tile, const ScoreParams& s, KV* dk, KV* dv) {
    // Read from a lane, so that the compiler sees that addresses are the same in all.
    Computer computer = {memory, __shfl_sync(~0u, int(threadIdx.x / 128) - 1, 0), int(threadIdx.x % 128), 0};
    float of_keys[WIDTH / 2] = {}, of_values[WIDTH / 2] = {};
    if (tile.turns() != 0) {
        Differentiation{computer, header, tile, s.scale * LOG2_E, of_keys, of_values}.run();
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int key = tile.first + computer.row(r), keys = int(s.keys);
        const i64 at = ((i64(tile.batch) * i64(s.kv_heads) + tile.head) * keys + min(key, keys - 1)) * WIDTH;
        computer.store_row(of_keys, r, s.scale, dk + at, key < keys);
        computer.store_row(of_values, r, 1.0f, dv + at, key < keys);
    }
}

extern "C" __global__ void __launch_bounds__(384, 1)
    attention_gradient_keys(const Q* q, const KV* k, const KV* v, const int* positions, const int* lengths, const Q* dy, const Queries* tiles,
                            const unsigned char* maps, KV* dk, KV* dv, const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const Memory memory = {shared_address(shared)};
    Header& header = *reinterpret_cast<Header*>(shared);
    memory.prepare();
    const Tile tile = find_tile(header, p.score, positions, lengths);
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        copy_all(memory, header, tile, p, q, k, v, dy, tiles, maps);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        compute_all(memory, header, tile, p.score, dk, dv);
    }
}
