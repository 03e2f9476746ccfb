// All sequences: a warpgroup has one block of a sequence's keys at a time, and sends for the next one while it works. combine.cu combines what it leaves.

constexpr int PIECES = (COLUMNS * WIDTH / 8 + THREADS - 1) / THREADS;  // Of eight elements of queries, of a thread.

struct Queries {
    u32 words[PIECES][4];

    DEVICE void load_all(const Work& work, const Item& item, const Q* q) {
        const View& view = work.p.score.q;
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            const int piece = threadIdx.x + i * THREADS, row = piece / CHUNKS;
            load_if(row < work.rows(), q + row_of(view, item.batch, work.head(item, row), work.query(row)) + piece % CHUNKS * 8, words[i]);
        }
    }

    DEVICE void store_all(u32 to) const {
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            const int piece = threadIdx.x + i * THREADS, row = piece / CHUNKS, column = piece % CHUNKS * 8;
            if (row < COLUMNS) {
                store_shared(to + place_of<COLUMNS>(row, column), words[i]);
            }
        }
    }
};

// Of all rows and blocks the sums, then the states.
struct Left {
    const Work& work;
    const Item& item;
    float* sums;
    State* states;

    DEVICE Left(const Work& work, const Item& item, float* found)
        : work(work), item(item), sums(found),
          states(reinterpret_cast<State*>(found + i64(work.p.score.batch * work.p.score.heads * work.p.score.queries) * work.split.parts * WIDTH)) {}

    DEVICE i64 place(int row) const {
        const ScoreParams& s = work.p.score;
        return i64((item.batch * int(s.heads) + work.head(item, row)) * int(s.queries) + work.query(row)) * work.split.parts + item.block;
    }
};

template <typename Places>
DEVICE void attend_all(const Params& p, const SplitParams& split, const Q* q, const KV* k, const KV* v, const int* positions, const int* lengths, Y*, float* found,
                       Places places) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const Memory memory(shared);
    admit_launches();
    await_launches();
    const Work work = {p, split, positions, lengths, int(threadIdx.x / 32), int(threadIdx.x % 32)};
    const auto send = [&](u32 to, const KV* rows, const View& view, const Item& item) {
        const int first = work.warp * (BLOCK / 4);
        places.template copy<BLOCK / 4>(work.lane, to + first * 128, rows + row_of(view, item.batch, item.kv_head, 0), view.token, item.batch, item.some,
                                        item.block * BLOCK + first);
        commit_copies();
    };
    Item item, next;
    Queries queries;
    int index = blockIdx.x;
    bool is_next = work.find(index, next);
    if (is_next) {
        send(memory.keys, k, p.score.k, next);
        send(memory.values, v, p.v, next);
        queries.load_all(work, next, q);
    }
    while (is_next) {
        item = next;
        queries.store_all(memory.queries);
        if (threadIdx.x < COLUMNS) {
            memory.ranges[threadIdx.x] = attended(p.score, positions, lengths, item.batch, work.query(threadIdx.x));
        }
        float scores[KEYS][4 * EIGHTS], bases[2 * EIGHTS];
        await_copies([] {});
        score(memory, work, item, scores);
        is_next = work.find(index += gridDim.x, next);
        __syncthreads();
        if (is_next) {
            send(memory.keys, k, p.score.k, next);
            queries.load_all(work, next, q);
        } else {
            commit_copies();
        }
        weigh(memory, work, scores, bases);
        await_copies([] {});
        sum_values(memory, work, bases, Left(work, item, found));
        __syncthreads();
        if (is_next) {
            send(memory.values, v, p.v, next);
        }
    }
}
