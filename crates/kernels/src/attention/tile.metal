// Up to ROWS rows (a row is a query of one of the heads that share keys) of one sequence, by eight simdgroups, one block of 256 keys at a time.
//
// Scores: simdgroup g has the keys 32 g … 32 g + 31 of the block. LANES lanes share a key, 8 elements each, and the rows' sums go up one tree.
// Weights: a simdgroup a row. Values: simdgroup g sums its 32 keys for all rows, COLUMNS neighbouring elements of a value a lane, CHUNKS times;
// the simdgroups' sums meet in threadgroup memory, where each thread adds those of one row and element in order.

// Kernels declare twice as many threads as they have, so that registers are left for a second threadgroup beside the first.
constant constexpr uint GROUP = 32;
constant constexpr uint THREADS = 256;

// Elements k … k + 7 of a row of `n`; `other` beyond its end.
template <typename T>
inline void load_slots(device const T* row, uint k, uint n, float other, thread float* slots) {
    if (k + SLOTS <= n && is_wide(row + k)) {
        return widen(CachedRow<T>::eight(row, k, n), slots);
    }
    for (uint i = 0; i < SLOTS; ++i) {
        slots[i] = k + i < n ? CachedRow<T>::one(row, k + i, n) : other;
    }
}

// A tile whose keys and values are all in memory, in one piece. Others have a newest key that is not, or pages: see decode.metal and paged/pages.metal.
struct Stored {
    // To be called before keys and values of the group from a key on are read: what is in memory for it.
    KeyRange turn(uint, KeyRange stored) { return stored; }
    bool is_missing() const { return false; }

    // Where a key is, or the nearest one that is stored.
    template <typename T>
    device const T* nearest(device const T* base, KeyRange stored, uint key, int step) const {
        return base + stored.nearest(key) * step;
    }
    template <typename T>
    device const T* at(device const T* base, uint key, int step) const {
        return base + key * long(step);
    }

    // The keys of a range that are in memory; whether the newest one is among the `count` from `first` on.
    KeyRange stored(KeyRange keys) const { return keys; }
    bool is_among(uint, uint) const { return false; }

    // Puts the newest key's elements from `element` on, or those of its value, in place of what was read for key `key`.
    template <uint N>
    void replace_key(uint, uint, thread float (&)[N]) const {}
    template <uint N>
    void replace_value(uint, uint, thread float (&)[N]) const {}
};

template <typename Q, typename KV, typename M, uint ROWS, uint LANES, uint COLUMNS, uint CHUNKS, typename Newest = Stored>
struct Tile {
    // Elements of a value that are summed at once; rows whose sums meet at once.
    static constexpr constant uint HEIGHT = ROWS;
    static constexpr constant uint WIDTH = 32 * COLUMNS;
    static constexpr constant uint PADDED = WIDTH * CHUNKS;
    static constexpr constant uint MEETING = ROWS < THREADS / WIDTH ? ROWS : THREADS / WIDTH;
    static constexpr constant uint PASSES = ROWS / MEETING;

    // Whether it is for panels.metal, which has scores and sums of its own.
    static constexpr constant bool IS_PANEL = ROWS > 8;

    // Keys that a simdgroup scores together. A lane has some in turn, whose sums go up one tree, and whose successors are in flight meanwhile.
    static constexpr constant uint TOGETHER = 32 / LANES;
    static constexpr constant uint BATCH = LANES < 4 ? LANES : 4;
    // Values that are in flight; rows whose values a simdgroup sums: all of them, or its own of a panel.
    static constexpr constant uint AT_ONCE = 8;
    static constexpr constant uint SUMMED = IS_PANEL ? ROWS / 8 : ROWS;
    // Parts of a query or key, of SLOTS elements; those of queries that a thread loads.
    static constexpr constant uint PARTS = LANES;
    static constexpr constant uint OWN = (ROWS * PARTS + THREADS - 1) / THREADS;
    // Floats that the simdgroups' sums meet in.
    static constexpr constant uint MET = IS_PANEL ? 0 : 8 * THREADS;

    typedef LaneSums<ROWS * BATCH, LANES> Tree;
    typedef CachedRow<KV> Row;
    typedef typename Row::template Few<COLUMNS> Value;

    constant Params& p;
    device const Q* q;
    device const KV* v;
    device const M* mask;
    threadgroup float* weights;
    threadgroup float* meeting;
    threadgroup float4* queries;
    threadgroup float* dense;
    threadgroup KeyRange* ranges;
    uint lane;
    uint simdgroup;
    // Rows of a query, and all of them.
    uint group;
    uint rows;
    uint batch;
    uint kv_head;
    uint first;
    // The first key, the step from key to key, which the launch has checked, and whether lanes take them in words that all are there.
    device const KV* first_key;
    int key_step;
    bool wide_keys;
    // The keys that any row may attend, those of them that are in memory, and those that all rows attend.
    KeyRange keys;
    KeyRange stored;
    KeyRange common;
    Newest newest;
    // A thread's parts of queries, until they are shared; elements of keys in flight.
    float own_queries[OWN][SLOTS];
    typename Row::Eight words[BATCH];

    Tile(constant Params& p, device const Q* q, device const KV* k, device const KV* v, device const M* mask, threadgroup float* shared, uint lane,
         uint simdgroup, uint tile, uint head)
        : p(p), q(q), v(v), mask(mask), weights(shared), meeting(weights + ROWS * BLOCK),
          queries(reinterpret_cast<threadgroup float4*>(meeting + MET)), dense(reinterpret_cast<threadgroup float*>(queries + 2 * ROWS * LANES)),
          ranges(reinterpret_cast<threadgroup KeyRange*>(dense + 8 * ROWS)), lane(lane), simdgroup(simdgroup),
          group(uint(p.score.heads) / uint(p.score.kv_heads)), rows(uint(p.score.queries) * group), batch(head / uint(p.score.kv_heads)),
          kv_head(head % uint(p.score.kv_heads)), first(tile * ROWS), first_key(k + row_of(p.score.k, batch, kv_head, 0)), key_step(int(p.score.k.token)),
          wide_keys(uint(p.score.width) == LANES * SLOTS && is_wide(first_key) && key_step % int(16 / sizeof(KV)) == 0), keys{0, 0},
          stored{0, 0}, common{0, 0} {}

    uint thread_index() const { return simdgroup * 32 + lane; }

    // A row that does not exist is taken for the last one.
    uint row(uint r) const { return min(first + r, rows - 1); }
    bool exists(uint r) const { return first + r < rows; }
    uint query(uint r) const { return row(r) / group; }
    // Its number among all rows of the output.
    ulong place(uint r) const { return (ulong(batch) * p.score.heads + head(r)) * p.score.queries + query(r); }
    uint head(uint r) const { return kv_head * group + row(r) % group; }

    // To be called before all else.
    void begin(device const int* positions, device const int* lengths) {
#pragma unroll
        for (uint i = 0; i < OWN; ++i) {
            const uint part = i * THREADS + thread_index();
            if (part < ROWS * PARTS) {
                load_query(part / PARTS, part % PARTS * SLOTS, own_queries[i]);
            }
        }
        if (thread_index() < ROWS) {
            ranges[thread_index()] = attended(p.score, positions, lengths, batch, query(thread_index()));
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        keys = attended_by<ROWS>(0);
        stored = keys;
        common = attended_by_all<ROWS>(0);
    }

    // The keys that any of N rows from `row` on may attend.
    template <uint N>
    KeyRange attended_by(uint row) const {
        KeyRange any = {0xffffffffu, 0};
#pragma unroll
        for (uint r = 0; r < N; ++r) {
            const KeyRange range = ranges[row + r];
            if (!range.is_empty()) {
                any = {min(any.start, range.start), max(any.end, range.end)};
            }
        }
        return {min(any.start, any.end), any.end};
    }

    // Those that all of them attend.
    template <uint N>
    KeyRange attended_by_all(uint row) const {
        KeyRange all = {0, 0xffffffffu};
#pragma unroll
        for (uint r = 0; r < N; ++r) {
            const KeyRange range = ranges[row + r];
            all = {max(all.start, range.start), min(all.end, range.end)};
        }
        return all;
    }

    // The same for rows that all attend `range`; whoever calls it puts the queries.
    void attend(KeyRange range) {
        if (thread_index() < ROWS) {
            ranges[thread_index()] = range;
        }
        keys = range;
        stored = newest.stored(range);
        common = stored;
    }

    void put_query(uint r, uint element, float value) {
        const uint word = (element % SLOTS / 4 * ROWS + r) * LANES + element / SLOTS;
        reinterpret_cast<threadgroup float*>(queries)[4 * word + element % 4] = value;
    }

    uint first_block() const { return keys.start / BLOCK; }
    uint last_block() const { return (keys.end + BLOCK - 1) / BLOCK; }

    // To be called before scores are made.
    void share_queries() {
#pragma unroll
        for (uint i = 0; i < OWN; ++i) {
            const uint part = i * THREADS + thread_index();
            if (part < ROWS * PARTS) {
                thread const float* x = own_queries[i];
                queries[part] = float4(x[0], x[1], x[2], x[3]);
                queries[ROWS * PARTS + part] = float4(x[4], x[5], x[6], x[7]);
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }

    // A lane's elements of a query.
    void shared_query(uint r, thread float (&slots)[SLOTS]) const {
        for (uint i = 0; i < SLOTS; ++i) {
            slots[i] = queries[(i / 4 * ROWS + r) * LANES + lane % LANES][i % 4];
        }
    }

    void load_query(uint r, uint element, thread float* slots) const {
        load_slots(q + row_of(p.score.q, batch, head(r), query(r)), element, uint(p.score.width), -0.0f, slots);
    }

    // The first key of the simdgroup's group of a block.
    uint group_of(uint block) const { return block * BLOCK + simdgroup * GROUP; }

    // A lane's part of the keys of a block: that of the one it has in turn `turn`.
    uint key_of(uint block, uint turn) const { return group_of(block) + lane / LANES + turn * TOGETHER; }
    device const KV* key_at(uint key) const { return newest.nearest(first_key, stored, key, key_step); }

    // A part of a key, as it lies in memory.
    typename Row::Eight key_part(uint key, uint part) const {
        device const KV* row = key_at(key);
        if (wide_keys) {
            return Row::eight(row, part * SLOTS, LANES * SLOTS);
        }
        float y[SLOTS];
        load_slots(row, part * SLOTS, uint(p.score.width), 0.0f, y);
        return narrow_words<KV>(y);
    }

    // Sends for the first keys of a block: what is done until `score` costs no time.
    void start_keys(uint block) {
        stored = newest.turn(group_of(block), newest.stored(keys));
        if (wide_keys && !stored.is_empty()) {
#pragma unroll
            for (uint i = 0; i < BATCH; ++i) {
                words[i] = Row::eight(key_at(key_of(block, i)), lane % LANES * SLOTS, LANES * SLOTS);
            }
        }
    }

    // Whether all rows attend all keys of the simdgroup's group.
    bool is_common(uint block) const {
        return common.holds_all(group_of(block), GROUP) && !stored.is_empty();
    }

    // Leaves the block's scores in `weights`, before soft cap and mask; negative infinity where a row does not attend a key.
    void score(uint block) {
        if (!keys.meets(group_of(block), GROUP)) {
            for (uint r = 0; r < ROWS; ++r) {
                weights[r * BLOCK + simdgroup * GROUP + lane] = -INFINITY;
            }
        } else if (!wide_keys) {
            for (uint turn = 0; turn < LANES; ++turn) {
                score_key(key_of(block, turn), lane % LANES * SLOTS);
            }
        } else if (is_common(block)) {
            score_words<true>(block);
        } else {
            score_words<false>(block);
        }
    }

    // The same for keys in words; ALL if all rows attend them.
    template <bool ALL>
    void score_words(uint block) {
        float x[ROWS][SLOTS];
#pragma unroll
        for (uint r = 0; r < ROWS; ++r) {
            shared_query(r, x[r]);
        }
        const uint element = lane % LANES * SLOTS;
        const long step = long(key_step) * TOGETHER;
        device const KV* next = newest.at(first_key, key_of(block, BATCH), key_step);
        for (uint pass = 0; pass < LANES; pass += BATCH) {
            float sums[BATCH * ROWS];
#pragma unroll
            for (uint i = 0; i < BATCH; ++i) {
                float y[SLOTS];
                widen(words[i], y);
                if (!ALL) {
                    newest.replace_key(key_of(block, pass + i), element, y);
                }
                if (pass + BATCH < LANES && (ALL || !stored.is_empty())) {
                    words[i] = Row::eight(ALL ? next : key_at(key_of(block, pass + BATCH + i)), element, LANES * SLOTS);
                }
                next += step;
#pragma unroll
                for (uint r = 0; r < ROWS; ++r) {
                    float slots[SLOTS];
                    multiply(x[r], y, slots);
                    sums[i * ROWS + r] = combine_slots<Add>(slots);
                }
            }
            Tree::apply(sums, lane);
            for (uint i = 0; i < Tree::HELD && Tree::leads(lane); ++i) {
                const uint at = Tree::first(lane) + i;
                put(at % ROWS, key_of(block, pass + at / ROWS), sums[i], ALL);
            }
        }
    }

    static void multiply(thread const float (&x)[SLOTS], thread const float (&y)[SLOTS], thread float (&slots)[SLOTS]) {
        for (uint i = 0; i < SLOTS; ++i) {
            slots[i] = fma(x[i], y[i], 0.0f);
        }
    }

    // The same for one key of any width and alignment.
    void score_key(uint key, uint element) {
        const uint width = uint(p.score.width);
        device const KV* at = key_at(key);
        float sums[ROWS];
#pragma unroll
        for (uint r = 0; r < ROWS; ++r) {
            float x[SLOTS], y[SLOTS], slots[SLOTS];
            shared_query(r, x);
            load_slots(at, element, stored.is_empty() ? 0 : width, 0.0f, y);
            newest.replace_key(key, element, y);
            multiply(x, y, slots);
            // The elements of long queries and keys that come round to the same accumulators.
            for (uint further = element + 32 * SLOTS; further < width; further += 32 * SLOTS) {
                load_query(r, further, x);
                load_slots(at, further, width, 0.0f, y);
                for (uint i = 0; i < SLOTS; ++i) {
                    slots[i] = fma(x[i], y[i], slots[i]);
                }
            }
            sums[r] = combine_slots<Add>(slots);
        }
        typedef LaneSums<ROWS, LANES> Rows;
        Rows::apply(sums, lane);
        for (uint i = 0; i < Rows::HELD && Rows::leads(lane); ++i) {
            put(Rows::first(lane) + i, key, sums[i], false);
        }
    }

    // Whether row r attends the key. The range comes out of threadgroup memory first: methods take their object from a thread's own.
    bool attends(uint r, uint key) const {
        const KeyRange range = ranges[r];
        return range.holds(key);
    }

    void put(uint r, uint key, float dot, bool attended) {
        // Adding the lanes that hold nothing turns -0 into +0.
        dot = LANES < 32 ? dot + 0.0f : dot;
        weights[r * BLOCK + key % BLOCK] = attended || attends(r, key) ? dot * p.score.scale : -INFINITY;
    }

    // The soft cap and the mask, if there are any, for the lane's scores of row r, which is the simdgroup's.
    void adjust(uint r, uint block) const {
        if (p.score.softcap <= 0.0f && p.score.mask_type == NO_MASK) {
            return;
        }
        threadgroup float* own = weights + r * BLOCK + lane * SLOTS;
        const uint key = block * BLOCK + lane * SLOTS;
#pragma unroll 1
        for (uint i = 0; i < SLOTS; ++i) {
            if (attends(r, key + i)) {
                own[i] = adjusted(p.score, own[i], mask, batch, head(r), query(r), key + i);
            }
        }
    }

    // Turns the scores of row r into weights.
    State weigh(uint r) {
        threadgroup float4* four = reinterpret_cast<threadgroup float4*>(weights + r * BLOCK + lane * SLOTS);
        float slots[SLOTS];
        float greatest = -INFINITY;
        for (uint i = 0; i < SLOTS; ++i) {
            slots[i] = four[i / 4][i % 4];
            greatest = Greatest::apply(slots[i], greatest);
        }
        greatest = combine_lanes<Greatest>(greatest);
        // Where no key is attended, the weights are zero all the same.
        const float shift = greatest == -INFINITY ? 0.0f : greatest;
        bool some_are_zero = false;
        for (uint i = 0; i < SLOTS; ++i) {
            slots[i] = strict::exp_nonpositive(slots[i] - shift);
            some_are_zero |= slots[i] == 0.0f;
        }
        four[0] = float4(slots[0], slots[1], slots[2], slots[3]);
        four[1] = float4(slots[4], slots[5], slots[6], slots[7]);
        float zeros = some_are_zero ? 1.0f : 0.0f;
        zeros += simd_shuffle_xor(zeros, 1);
        zeros += simd_shuffle_xor(zeros, 2);
        if (lane % 4 == 0) {
            dense[r * 8 + lane / 4] = zeros;
        }
        return {greatest, combine_lanes<Add>(combine_slots<Add>(slots))};
    }

    // A lane's elements of values, from `chunk` on; those of a group of keys, the first ones, or those that come next.
    struct Values {
        Value at[AT_ONCE];
        device const KV* start;
        int step;
        uint first_key;
        uint column;
        uint width;
        bool wide;
    };

    // Finds where a chunk of values is.
    void find_values(uint chunk, thread Values& values) const {
        const uint width = uint(p.value_width), column = chunk * WIDTH + lane * COLUMNS;
        values.column = column;
        values.start = v + row_of(p.v, batch, kv_head, 0);
        values.step = int(p.v.token);
        values.width = column < width ? width - column : 0;
        values.wide = values.width >= COLUMNS && reinterpret_cast<ulong>(values.start + column) % (COLUMNS * sizeof(KV)) == 0 && values.step % int(COLUMNS) == 0;
    }

    // Sends for the first values of the group from `first_key` on: what is done until `sum_values` costs no time.
    void start_values(uint first_key, thread Values& values) const {
        values.first_key = first_key;
        if (values.wide && !stored.is_empty()) {
#pragma unroll
            for (uint i = 0; i < AT_ONCE; ++i) {
                values.at[i] = Row::template few<COLUMNS>(value_at(values, i), values.column, uint(p.value_width));
            }
        }
    }

    device const KV* value_at(thread const Values& values, uint i) const {
        return newest.nearest(values.start, stored, values.first_key + i, values.step);
    }

    // Sums the values of group `number` of a block, weighted, for SUMMED rows from `row` on.
    void sum_values(thread Values& values, uint number, uint row, thread float (&sums)[SUMMED][COLUMNS]) const {
        for (uint i = 0; i < SUMMED * COLUMNS; ++i) {
            sums[i / COLUMNS][i % COLUMNS] = 0.0f;
        }
        float zeros = newest.is_among(values.first_key, GROUP) || stored.is_empty() ? 1.0f : 0.0f;
#pragma unroll
        for (uint r = 0; r < SUMMED; ++r) {
            zeros += dense[(row + r) * 8 + number];
        }
        if (!values.wide) {
            add_any(values, number, row, sums);
        } else if (zeros == 0.0f) {
            add_values<true>(values, number, row, sums);
        } else {
            add_values<false>(values, number, row, sums);
        }
    }

    // Keys of the group that any row may attend are before this.
    uint group_end(uint first_key) const { return keys.end > first_key ? min(keys.end - first_key, GROUP) : 0; }

    // Adds the weighted values. Unless DENSE, some weights are zero, whose values are passed over, or a key is not in memory.
    template <bool DENSE>
    void add_values(thread Values& values, uint number, uint row, thread float (&sums)[SUMMED][COLUMNS]) const {
        threadgroup const float4* own = reinterpret_cast<threadgroup const float4*>(weights + row * BLOCK + number * GROUP);
        const uint end = group_end(values.first_key);
        const long step = values.step;
        device const KV* next = newest.at(values.start, values.first_key + AT_ONCE, values.step);
        for (uint first = 0; first < end; first += AT_ONCE) {
#pragma unroll
            for (uint part = 0; part < AT_ONCE; part += 4) {
                float value[4][COLUMNS];
#pragma unroll
                for (uint i = 0; i < 4; ++i) {
                    widen(values.at[part + i], value[i]);
                    if (!DENSE) {
                        newest.replace_value(values.first_key + first + part + i, values.column, value[i]);
                    }
                    if (first + AT_ONCE < GROUP && (DENSE || !stored.is_empty())) {
                        // All keys exist where none has a zero weight.
                        device const KV* from = DENSE ? next : value_at(values, first + AT_ONCE + part + i);
                        values.at[part + i] = Row::template few<COLUMNS>(from, values.column, uint(p.value_width));
                    }
                    next += step;
                }
#pragma unroll
                for (uint r = 0; r < SUMMED; ++r) {
                    const float4 weight = own[(r * BLOCK + first + part) / 4];
#pragma unroll
                    for (uint i = 0; i < 4; ++i) {
                        for (uint c = 0; c < COLUMNS && (DENSE || weight[i] != 0.0f); ++c) {
                            sums[r][c] = fma(weight[i], value[i][c], sums[r][c]);
                        }
                    }
                }
            }
        }
    }

    // The same for values of any width and alignment.
    void add_any(thread const Values& values, uint number, uint row, thread float (&sums)[SUMMED][COLUMNS]) const {
        const uint end = values.width > 0 ? group_end(values.first_key) : 0;
        for (uint i = 0; i < end; ++i) {
            device const KV* from = value_at(values, i);
            float value[COLUMNS];
            for (uint c = 0; c < COLUMNS; ++c) {
                value[c] = c < values.width && !stored.is_empty() ? Row::one(from, values.column + c, uint(p.value_width)) : 0.0f;
            }
            newest.replace_value(values.first_key + i, values.column, value);
#pragma unroll
            for (uint r = 0; r < SUMMED; ++r) {
                const float weight = weights[(row + r) * BLOCK + number * GROUP + i];
                for (uint c = 0; c < COLUMNS && weight != 0.0f; ++c) {
                    sums[r][c] = fma(weight, value[c], sums[r][c]);
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
            Piece<float, COLUMNS> own;
            narrow(sums[pass * MEETING + r], own);
            reinterpret_cast<threadgroup Piece<float, COLUMNS>*>(meeting + simdgroup * THREADS + r * WIDTH)[lane] = own;
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
