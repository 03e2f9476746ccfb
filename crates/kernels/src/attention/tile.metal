// Up to ROWS rows (a row is a query of one of the heads that share keys) of one sequence, by eight simdgroups, one block of 256 keys at a time.
//
// Scores: simdgroup g has the keys 32 g … 32 g + 31 of the block. LANES lanes share a key, 8 elements each, and the rows' sums go up one tree.
// Weights: a simdgroup a row. Values: simdgroup g sums its 32 keys for all rows, COLUMNS neighbouring elements of a value a lane, CHUNKS times;
// the simdgroups' sums meet in threadgroup memory, where each thread adds those of one row and element in order.

constant constexpr uint GROUP = 32;
constant constexpr uint THREADS = 256;

// Elements k … k + 7 of a row of `n`; `other` beyond its end.
template <typename T>
inline void load_slots(device const T* row, uint k, uint n, float other, thread float* slots) {
    if (k + SLOTS <= n && is_wide(row + k)) {
        return load_wide(row + k, slots);
    }
    for (uint i = 0; i < SLOTS; ++i) {
        slots[i] = k + i < n ? widen(row[k + i]) : other;
    }
}

template <typename T, uint N>
struct alignas(N * sizeof(T)) Neighbours {
    T elements[N];
};

// N elements that lie at a multiple of their size.
template <uint N, typename T>
inline void load_neighbours(device const T* p, thread float* values) {
    const Neighbours<T, N> all = *reinterpret_cast<device const Neighbours<T, N>*>(p);
    for (uint i = 0; i < N; ++i) {
        values[i] = widen(all.elements[i]);
    }
}

// The first N of `n` elements; zeros beyond.
template <uint N, typename T>
inline void load_neighbours(device const T* p, uint n, thread float* values) {
    for (uint i = 0; i < N; ++i) {
        values[i] = i < n ? widen(p[i]) : 0.0f;
    }
}

template <typename Q, typename KV, typename M, uint ROWS, uint LANES, uint COLUMNS, uint CHUNKS>
struct Tile {
    // Elements of a value that are summed at once; rows whose sums meet at once.
    static constexpr constant uint WIDTH = 32 * COLUMNS;
    static constexpr constant uint MEETING = ROWS < THREADS / WIDTH ? ROWS : THREADS / WIDTH;
    static constexpr constant uint PASSES = ROWS / MEETING;

    // Keys that a simdgroup scores together, and how often it loads ahead; values loaded ahead.
    static constexpr constant uint TOGETHER = 32 / LANES;
    static constexpr constant uint AHEAD = LANES < 4 ? LANES : 4;
    static constexpr constant uint AT_ONCE = 8;

    typedef LaneSums<ROWS, LANES> Tree;

    constant Params& p;
    device const Q* q;
    device const KV* k;
    device const KV* v;
    device const M* mask;
    threadgroup float* weights;
    threadgroup float* meeting;
    threadgroup float* dense;
    threadgroup KeyRange* ranges;
    uint lane;
    uint simdgroup;
    uint batch;
    uint kv_head;
    uint first;
    // The keys that any row may attend.
    KeyRange keys;

    Tile(constant Params& p, device const Q* q, device const KV* k, device const KV* v, device const M* mask, threadgroup float* shared, uint lane,
         uint simdgroup, uint tile, uint head)
        : p(p), q(q), k(k), v(v), mask(mask), weights(shared), meeting(weights + ROWS * BLOCK), dense(meeting + 8 * THREADS),
          ranges(reinterpret_cast<threadgroup KeyRange*>(dense + 8 * ROWS)), lane(lane), simdgroup(simdgroup), batch(head / uint(p.score.kv_heads)),
          kv_head(head % uint(p.score.kv_heads)), first(tile * ROWS), keys{0, 0} {}

    uint group() const { return uint(p.score.heads / p.score.kv_heads); }
    uint thread_index() const { return simdgroup * 32 + lane; }

    // A row that does not exist is taken for the last one.
    uint row(uint r) const { return min(first + r, uint(p.score.queries) * group() - 1); }
    bool exists(uint r) const { return first + r < uint(p.score.queries) * group(); }
    uint query(uint r) const { return row(r) / group(); }
    // Its number among all rows of the output.
    ulong place(uint r) const { return (ulong(batch) * p.score.heads + head(r)) * p.score.queries + query(r); }
    uint head(uint r) const { return kv_head * group() + row(r) % group(); }

    // To be called before all else.
    void begin(device const int* positions, device const int* lengths) {
        if (thread_index() < ROWS) {
            ranges[thread_index()] = attended(p.score, positions, lengths, batch, query(thread_index()));
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        keys = {0xffffffffu, 0};
#pragma unroll
        for (uint r = 0; r < ROWS; ++r) {
            const KeyRange range = ranges[r];
            if (range.start < range.end) {
                keys = {min(keys.start, range.start), max(keys.end, range.end)};
            }
        }
        keys.start = min(keys.start, keys.end);
    }

    uint first_block() const { return keys.start / BLOCK; }
    uint last_block() const { return (keys.end + BLOCK - 1) / BLOCK; }

    void load_query(uint r, uint element, thread float* slots) const {
        load_slots(q + row_of(p.score.q, batch, head(r), query(r)), element, uint(p.score.width), -0.0f, slots);
    }

    // Leaves the block's scores in `weights`; negative infinity where a row does not attend a key.
    void score(uint block) {
        const uint width = uint(p.score.width), element = lane % LANES * SLOTS;
        const ulong origin = row_of(p.score.k, batch, kv_head, 0);
        const bool wide = width % (LANES * SLOTS) == 0 && is_wide(k + origin) && p.score.k.token % long(16 / sizeof(KV)) == 0;
        float x[ROWS][SLOTS], y[AHEAD][SLOTS];
#pragma unroll
        for (uint r = 0; r < ROWS; ++r) {
            load_query(r, element, x[r]);
        }
        const uint first_key = block * BLOCK + simdgroup * GROUP + lane / LANES;
        for (uint pass = 0; pass < LANES; pass += AHEAD) {
            if (wide) {
#pragma unroll
                for (uint i = 0; i < AHEAD; ++i) {
                    load_wide(k + origin + keys.nearest(first_key + (pass + i) * TOGETHER) * p.score.k.token + element, y[i]);
                }
            } else {
#pragma unroll
                for (uint i = 0; i < AHEAD; ++i) {
                    load_slots(k + origin + keys.nearest(first_key + (pass + i) * TOGETHER) * p.score.k.token, element, width, 0.0f, y[i]);
                }
            }
#pragma unroll
            for (uint i = 0; i < AHEAD; ++i) {
                score_keys(first_key + (pass + i) * TOGETHER, x, y[i]);
            }
        }
    }

    // The scores of the simdgroup's keys, one for each LANES lanes, of which each lane holds its slots.
    void score_keys(uint key, thread const float (&x)[ROWS][SLOTS], thread const float* y) {
        float sums[ROWS];
#pragma unroll
        for (uint r = 0; r < ROWS; ++r) {
            float slots[SLOTS];
            for (uint i = 0; i < SLOTS; ++i) {
                slots[i] = fma(x[r][i], y[i], 0.0f);
            }
            fold_rest(r, key, slots);
            sums[r] = combine_slots<Add>(slots);
        }
        Tree::apply(sums, lane);
        for (uint i = 0; i < Tree::HELD && Tree::leads(lane); ++i) {
            const uint r = Tree::first(lane) + i;
            // Adding the lanes that hold nothing turns -0 into +0.
            const float dot = LANES < 32 ? sums[i] + 0.0f : sums[i];
            const KeyRange range = ranges[r];
            weights[r * BLOCK + key % BLOCK] = range.holds(key) ? score_of(p.score, dot, mask, batch, head(r), query(r), key) : -INFINITY;
        }
    }

    // The elements of long queries and keys that come round to the same accumulators.
    void fold_rest(uint r, uint key, thread float* slots) const {
        const uint width = uint(p.score.width);
        for (uint element = (lane % LANES + 32) * SLOTS; element < width; element += 32 * SLOTS) {
            float x[SLOTS], y[SLOTS];
            load_query(r, element, x);
            load_slots(k + row_of(p.score.k, batch, kv_head, keys.nearest(key)), element, width, 0.0f, y);
            for (uint i = 0; i < SLOTS; ++i) {
                slots[i] = fma(x[i], y[i], slots[i]);
            }
        }
    }

    // Turns the scores of the simdgroup's row into weights.
    State weigh() {
        threadgroup float* own = weights + simdgroup * BLOCK + lane * SLOTS;
        float slots[SLOTS];
        float greatest = -INFINITY;
        for (uint i = 0; i < SLOTS; ++i) {
            slots[i] = own[i];
            greatest = Greatest::apply(slots[i], greatest);
        }
        greatest = combine_lanes<Greatest>(greatest);
        bool some_are_zero = false;
        for (uint i = 0; i < SLOTS; ++i) {
            slots[i] = greatest == -INFINITY ? 0.0f : strict::exp_nonpositive(slots[i] - greatest);
            own[i] = slots[i];
            some_are_zero |= slots[i] == 0.0f;
        }
        float zeros = some_are_zero ? 1.0f : 0.0f;
        zeros += simd_shuffle_xor(zeros, 1);
        zeros += simd_shuffle_xor(zeros, 2);
        if (lane % 4 == 0) {
            dense[simdgroup * 8 + lane / 4] = zeros;
        }
        return {greatest, combine_lanes<Add>(combine_slots<Add>(slots))};
    }

    // Sums the simdgroup's group of weighted values.
    void sum_values(uint block, uint chunk, thread float (&sums)[ROWS][COLUMNS]) const {
        for (uint i = 0; i < ROWS * COLUMNS; ++i) {
            sums[i / COLUMNS][i % COLUMNS] = 0.0f;
        }
        const uint start = block * BLOCK + simdgroup * GROUP, end = min(keys.end, start + GROUP);
        const uint width = uint(p.value_width), column = chunk * WIDTH + lane * COLUMNS;
        if (column >= width) {
            return;
        }
        float zeros = 0.0f;
#pragma unroll
        for (uint r = 0; r < ROWS; ++r) {
            zeros += dense[r * 8 + simdgroup];
        }
        device const KV* values = v + row_of(p.v, batch, kv_head, 0) + column;
        if (zeros == 0.0f) {
            add_values<true>(values, start, end, width - column, sums);
        } else {
            add_values<false>(values, start, end, width - column, sums);
        }
    }

    // Adds the weighted values of the keys from `start` up to `end`. Unless DENSE, some weights are zero, and their values are passed over.
    template <bool DENSE>
    void add_values(device const KV* values, uint start, uint end, uint width, thread float (&sums)[ROWS][COLUMNS]) const {
        const bool wide = width >= COLUMNS && reinterpret_cast<ulong>(values) % (COLUMNS * sizeof(KV)) == 0 && p.v.token % long(COLUMNS) == 0;
        for (uint key = start; key < end; key += AT_ONCE) {
            float value[AT_ONCE][COLUMNS];
            if (wide) {
#pragma unroll
                for (uint i = 0; i < AT_ONCE; ++i) {
                    load_neighbours<COLUMNS>(values + keys.nearest(key + i) * p.v.token, value[i]);
                }
            } else {
#pragma unroll
                for (uint i = 0; i < AT_ONCE; ++i) {
                    load_neighbours<COLUMNS>(values + keys.nearest(key + i) * p.v.token, width, value[i]);
                }
            }
#pragma unroll
            for (uint r = 0; r < ROWS; ++r) {
#pragma unroll
                for (uint i = 0; i < AT_ONCE; ++i) {
                    const float weight = weights[r * BLOCK + key % BLOCK + i];
                    for (uint c = 0; c < COLUMNS && (DENSE || weight != 0.0f); ++c) {
                        sums[r][c] = fma(weight, value[i][c], sums[r][c]);
                    }
                }
            }
        }
    }

    // Whether the thread has a sum of each pass, and then the row and the element of a value.
    bool meets() const { return thread_index() < MEETING * WIDTH; }
    uint meeting_row(uint pass) const { return pass * MEETING + thread_index() / WIDTH; }
    uint meeting_column(uint chunk) const { return chunk * WIDTH + thread_index() % WIDTH; }

    // The sum over the groups.
    float meet(thread const float (&sums)[ROWS][COLUMNS], uint pass) {
        for (uint r = 0; r < MEETING; ++r) {
            for (uint c = 0; c < COLUMNS; ++c) {
                meeting[simdgroup * THREADS + r * WIDTH + lane * COLUMNS + c] = sums[pass * MEETING + r][c];
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        float sum = 0.0f;
        for (uint g = 0; g < 8 && meets(); ++g) {
            sum += meeting[g * THREADS + thread_index()];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        return sum;
    }
};
