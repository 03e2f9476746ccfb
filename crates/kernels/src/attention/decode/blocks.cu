// Attention of a new token of each text, which goes into the caches first, in blocks of keys: of few.cu, with its bits.
//
// The thread blocks of a cluster, PARTS of them, share the blocks of keys of a text and a key head, and combine what those left.
//
// Macros: those of few.cu.

// The queries, eight elements of a thread at a time, to be rotated: zeros in place of those that do not exist.
struct Queries {
    static constexpr int PIECES = (COLUMNS * CHUNKS + THREADS - 1) / THREADS;
    Eight pieces[PIECES];

    static DEVICE int row(int piece) { return (piece * THREADS + threadIdx.x) / CHUNKS; }
    static DEVICE int first(int piece) { return (piece * THREADS + threadIdx.x) % CHUNKS * 8; }

    DEVICE void place(const Work& work, const Item& item, const TokenParams& p, const Q* queries) {
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            pieces[i].place(p, queries + row_of(work.p.score.q, item.batch, work.head(item, row(i)), 0), first(i));
        }
    }

    DEVICE void load(const TokenParams& p) {
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            pieces[i].load(p);
        }
    }

    DEVICE void share(const Memory& memory, const Rotation& rotation, const Work& work, const TokenParams& p) const {
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            u32 words[4] = {};
            if (row(i) < work.rows()) {
                pieces[i].rotate(rotation, p, words);
            }
            if (row(i) < COLUMNS) {
                store_shared(memory.queries + place_of<COLUMNS>(row(i), first(i)), words);
            }
        }
    }
};

// What a thread block leaves: of each row the sums of each of its blocks, then the states.
struct Own {
    float* sums;
    State* states;
    int blocks;
    int block;

    DEVICE int place(int row) const { return row * blocks + block; }
};

// The same of all thread blocks of the cluster, of an element of a row; the first of the keys' blocks is the first one's.
struct Left {
    const Own& own;
    int first;
    int row;
    int element;

    DEVICE int place(int block) const { return row * own.blocks + (block - first) / PARTS; }
    DEVICE float sum(int block) const { return load_from((block - first) % PARTS, own.sums[place(block) * WIDTH + element]); }
    DEVICE State state(int block) const {
        const State& here = own.states[place(block)];
        return {load_from((block - first) % PARTS, here.base), load_from((block - first) % PARTS, here.sum)};
    }
};

// `slots` are where tokens go, below `capacity`, if not to their positions.
template <typename Places>
DEVICE void attend_tokens(const Params& p, const TokenParams& token, const SplitParams& split, KV* key_cache, KV* value_cache, const Q* queries, const Q* new_key,
                          const Q* new_value, const int* positions, const int* slots, i64 capacity, const float* frequencies, Y* y, Places places, u32* error_flag) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const Memory memory(shared);
    Rotation& rotation = *reinterpret_cast<Rotation*>(memory.ranges + COLUMNS);
    const int blocks = (int(split.parts) + PARTS - 1) / PARTS;
    float* const sums = reinterpret_cast<float*>(&rotation + 1);
    Own own = {sums, reinterpret_cast<State*>(sums + COLUMNS * blocks * WIDTH), blocks, 0};
    const Work work = {p, split, positions, nullptr, int(threadIdx.x / 32), int(threadIdx.x % 32)};
    const int kv_head = blockIdx.y, text = blockIdx.z, position = positions[text * p.score.position_stride];
    const float frequency = own_frequency(token, frequencies);
    const i64 slot = slots == nullptr ? position : slots[text];
    const bool fits = 0 <= slot && slot < capacity;
    const KeyRange range = attended(p.score, positions, nullptr, text, 0), stored = {range.start, min(range.end, max(position, 0))};
    const int end = range.start < range.end ? (range.end + BLOCK - 1) / BLOCK : 0;
    Item item = {text, kv_head, range.start / BLOCK + int(blockIdx.x), range, range};
    const auto send = [&](u32 to, const KV* rows, const View& view, int block) {
        const int first = work.warp * (BLOCK / 4);
        places.template copy<BLOCK / 4>(work.lane, to + first * 128, rows + row_of(view, text, kv_head, 0), view.token, text, stored, block * BLOCK + first);
        commit_copies();
    };
    // The thread block that has the newest row's block of keys, whether it is attended or not.
    const bool is_last = fits && (position / BLOCK - item.block) % PARTS == 0;
    if (item.block < end) {
        send(memory.keys, key_cache, p.score.k, item.block);
        send(memory.values, value_cache, p.v, item.block);
        if (threadIdx.x < COLUMNS) {
            memory.ranges[threadIdx.x] = range;
        }
    }
    Queries loaded;
    loaded.place(work, item, token, queries);
    // Of each thread an element.
    const int row = position % BLOCK, e = threadIdx.x;
    const bool has_newest = is_last && e < WIDTH;
    Newest newest;
    newest.place(token, text, kv_head, new_key, new_value, e);
    KV* const key_to = key_cache + row_of(p.score.k, text, kv_head, 0) + slot * p.score.k.token + e;
    KV* const value_to = value_cache + row_of(p.v, text, kv_head, 0) + slot * p.v.token + e;
    KV newest_key, newest_value;
    await_launches();
    admit_launches();
    if (item.block < end) {
        loaded.load(token);
    }
    if (has_newest) {
        newest.load(token);
    }
    // While these are in flight.
    if (item.block < end || is_last) {
        share_rotation(rotation, token, position, frequency);
    }
    __syncthreads();
    if (item.block < end) {
        loaded.share(memory, rotation, work, token);
    }
    if (has_newest) {
        store(&newest_key, newest.key(rotation, token));
        store(&newest_value, newest.value);
        *key_to = newest_key;
        *value_to = newest_value;
    }
    // Puts the newest row in place of one that was copied.
    const auto await_rows = [&](bool is_newest, KV x, u32 tile) {
        await_copies([&] {
            if (is_newest) {
                __syncthreads();
                if (e < WIDTH) {
                    store_shared(tile + place_of<BLOCK>(row, e / 8 * 8) + e % 8 * 2, x.bits);
                }
            }
        });
    };
    for (; item.block < end; item.block += PARTS, ++own.block) {
        const bool is_newest = is_last && position / BLOCK == item.block && position < range.end, more = item.block + PARTS < end;
        float scores[KEYS][4 * EIGHTS], bases[2 * EIGHTS];
        await_rows(is_newest, newest_key, memory.keys);
        score(memory, work, item, scores);
        __syncthreads();
        if (more) {
            send(memory.keys, key_cache, p.score.k, item.block + PARTS);
        } else {
            commit_copies();
        }
        weigh(memory, work, scores, bases);
        await_rows(is_newest, newest_value, memory.values);
        sum_values(memory, work, bases, own);
        if (more) {
            __syncthreads();
            send(memory.values, value_cache, p.v, item.block + PARTS);
        }
    }
    meet();
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < work.rows() * WIDTH; i += PARTS * THREADS) {
        const int head = work.head(item, i / WIDTH), element = i % WIDTH;
        store(y + row_of(p.y, text, head, 0) + element, combined(Left{own, range.start / BLOCK, i / WIDTH, element}, range));
    }
    leave();
    if (!fits && blockIdx.x + blockIdx.y + threadIdx.x == 0) {
        atomicMax(error_flag, ~u32(text));
    }
}
