// Attention's gradient by its keys and values on the tensor cores of compute capability 9.0: fast precision, in CUDA C++.
//
// A thread block has 128 keys of one head, and walks over the queries that attend them, 64 at a time, of all heads that share the keys. One warpgroup copies
// queries and the gradients of their outputs to a ring of buffers, and finds what is known of the queries. The other two have 64 keys each: scores, whose
// rows are keys, and products of values and gradients by wgmma; weights from the statistics of attention_gradient_queries; sums by wgmma.
//
// Macros: Q and KV (f16 or bf16, the same) and WIDTH (64 or 128).

// What is known of an item's queries.
struct Queries {
    // Where their weights begin, in powers of two, and the products of outputs and gradients.
    float2 statistics[BLOCK];
    // The keys that each attends, and those that all do.
    KeyRange attended[BLOCK];
    KeyRange all;
};

struct Header {
    unsigned char barriers[256];
    int range[2];
    __align__(16) Queries items[STAGES / 2];

    DEVICE Queries& queries(u32 item) { return items[item / 2 % (STAGES / 2)]; }
};
static_assert(sizeof(Header) <= HEADER, "the header is too small");

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

// A warp finds what is known of BLOCK queries from `first` on.
DEVICE void find_queries(Queries& to, const Tile& tile, const ScoreParams& s, const int* positions, const int* lengths, const float2* statistics,
                         int first) {
    KeyRange all = {0, 0x7fffffff};
#pragma unroll
    for (int i = threadIdx.x % 32; i < BLOCK; i += 32) {
        const int query = first + i;
        const bool exists = tile.queries.start <= query && query < tile.queries.end;
        const KeyRange range = exists ? attended(s, positions, lengths, tile.batch, query) : KeyRange{0, 0};
        to.statistics[i] = exists ? statistics[query] : make_float2(-NEVER, 0.0f);
        to.attended[i] = range;
        all = {max(all.start, range.start), min(all.end, range.end)};
    }
    to.all = {__reduce_max_sync(~0u, all.start), __reduce_min_sync(~0u, all.end)};
}

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
            scores[i] = exp2_approximate(fmaf(scores[i], scale, -queries.statistics[i / 4 * 8 + computer.column() + i % 2].x));
        }
        if (tile.first < queries.all.start || queries.all.end < tile.first + ROWS) {
#pragma unroll
            for (int i = 0; i < BLOCK / 2; ++i) {
                const KeyRange range = queries.attended[i / 4 * 8 + computer.column() + i % 2];
                const int key = tile.first + computer.row(i / 2 % 2);
                scores[i] = range.start <= key && key < range.end ? scores[i] : 0.0f;
            }
        }
    }

    // Products of an item, and sums of keys of the one before, which go on until its scores are there.
    template <bool IS_FIRST>
    DEVICE void take() {
        const Memory memory = computer.memory;
        const u32 item = computer.items, rows = computer.await_item(item), outputs = computer.await_item(item + 1);
        const Queries& queries = header.queries(item);
        if constexpr (!IS_FIRST) {
            computer.begin_sums(of_keys, slopes, memory.stage(item - 2));
        }
        computer.begin_scores(scores, 0, rows);
        computer.begin_scores(gradients, 1, outputs);
        await_products<1>();
        settle(scores);
        settle(of_keys);
        if constexpr (!IS_FIRST) {
            computer.release(memory.empty(item - 2));
        }
        weigh(queries);
        computer.narrow(scores, weights);
        computer.begin_sums(of_values, weights, outputs);
        await_products<1>();
        settle(gradients);
#pragma unroll
        for (int i = 0; i < BLOCK / 2; ++i) {
            gradients[i] = scores[i] * (gradients[i] - queries.statistics[i / 4 * 8 + computer.column() + i % 2].y);
        }
        computer.narrow(gradients, slopes);
        await_products<0>();
        settle(of_values);
        computer.release(memory.empty(item + 1));
        computer.items += 2;
    }

    DEVICE void run() {
        wait(computer.memory.own_full(), 0);
        take<true>();
        for (int turn = 1; turn < tile.turns(); ++turn) {
            take<false>();
        }
        computer.begin_sums(of_keys, slopes, computer.memory.stage(computer.items - 2));
        await_products<0>();
        settle(of_keys);
    }
};

DEVICE void copy_all(Memory memory, Header& header, const Tile& tile, const Params& p, const int* positions, const int* lengths, const Q* q, const KV* k,
                     const KV* v, const Q* dy, const float2* statistics) {
    const ScoreParams& s = p.score;
    Copier copier = {memory, int(threadIdx.x / 32 % 4), int(threadIdx.x % 32), 0, false};
    copier.copy_own(0, k + row_of(s.k, tile.batch, tile.head, 0), s.k.token, tile.first, int(s.keys));
    copier.copy_own(1, v + row_of(p.v, tile.batch, tile.head, 0), p.v.token, tile.first, int(s.keys));
    for (int turn = 0; turn < tile.turns(); ++turn) {
        const int head = tile.head * tile.group + turn / tile.blocks(), first = (tile.queries.start / BLOCK + turn % tile.blocks()) * BLOCK;
        copier.copy_item(q + row_of(s.q, tile.batch, head, 0), s.q.token, first, tile.queries, [&] {
            const float2* of_head = statistics + (i64(tile.batch) * i64(s.heads) + head) * i64(s.queries);
            find_queries(header.queries(copier.items), tile, s, positions, lengths, of_head, first);
        });
        copier.copy_item(dy + row_of(p.y, tile.batch, head, 0), p.y.token, first, tile.queries);
    }
    copier.finish();
}

DEVICE void compute_all(Memory memory, Header& header, const Tile& tile, const ScoreParams& s, KV* dk, KV* dv) {
    Computer computer = {memory, int(threadIdx.x / 128) - 1, int(threadIdx.x % 128), 0};
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
    attention_gradient_keys(const Q* q, const KV* k, const KV* v, const int* positions, const int* lengths, const Q* dy, const float2* statistics, KV* dk,
                            KV* dv, const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const Memory memory = {shared_address(shared)};
    Header& header = *reinterpret_cast<Header*>(shared);
    memory.prepare();
    const Tile tile = find_tile(header, p.score, positions, lengths);
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        copy_all(memory, header, tile, p, positions, lengths, q, k, v, dy, statistics);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        compute_all(memory, header, tile, p.score, dk, dv);
    }
}
