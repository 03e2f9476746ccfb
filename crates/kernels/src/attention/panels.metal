// A panel, a tile of many rows, over all its blocks of keys, which are combined as they come: as walk.metal does for other tiles.
//
// Scores: a simdgroup has SCORED rows and 64 keys, of which a lane has two, whole: it adds up itself what lanes add in smaller tiles, in their order.
// Weights and values: a simdgroup has an eighth of the rows and all keys.

constant constexpr uint SCORED = 8;
constant constexpr uint PAIR = 2;

// Dot products of a simdgroup's rows and a lane's keys.
struct Dots {
    float at[SCORED][PAIR];

    void add(thread const Dots& other) {
        for (uint i = 0; i < SCORED * PAIR; ++i) {
            at[i / PAIR][i % PAIR] += other.at[i / PAIR][i % PAIR];
        }
    }
};

// Keys of a tile in threadgroup memory. Their parts are swizzled: eight neighbouring keys have the same part in different banks.
template <typename T>
struct StagedKeys {
    typedef typename T::Row::Eight Part;
    // Keys at once.
    static constexpr constant uint COUNT = 8 * SCORED / T::HEIGHT * PAIR * 32;

    threadgroup Part* parts;

    // What the numbers of a key's parts are exclusive-ored with.
    static uint swizzle(uint key) { return T::PARTS < 8 ? key * T::PARTS / 8 % T::PARTS : key % 8; }

    // Copies the keys from `first` on.
    void copy(thread T& tile, uint first) const {
        constexpr uint OWN = COUNT * T::PARTS / THREADS;
        Part own[OWN];
#pragma unroll
        for (uint i = 0; i < OWN; ++i) {
            const uint at = i * THREADS + tile.thread_index(), key = first + at / T::PARTS;
            tile.stored = tile.newest.turn(key / GROUP * GROUP, tile.newest.stored(tile.keys));
            own[i] = tile.key_part(key, at % T::PARTS);
        }
#pragma unroll
        for (uint i = 0; i < OWN; ++i) {
            const uint at = i * THREADS + tile.thread_index();
            parts[at ^ swizzle(at / T::PARTS)] = own[i];
        }
    }

    // The dot products of a part, for keys `key` and 32 further.
    Dots multiply(threadgroup const float4* queries, uint key, uint part) const {
        threadgroup const Part* own = parts + (key * T::PARTS + (part ^ swizzle(key)));
        float y[PAIR][SLOTS];
#pragma unroll
        for (uint i = 0; i < PAIR; ++i) {
            const Part words = own[32 * i * T::PARTS];
            widen(words, y[i]);
        }
        threadgroup const float4* at = queries + part;
        Dots dots;
#pragma unroll
        for (uint r = 0; r < SCORED; ++r) {
            float x[SLOTS];
            for (uint i = 0; i < SLOTS; ++i) {
                x[i] = at[(i / 4 * T::HEIGHT + r) * T::PARTS][i % 4];
            }
#pragma unroll
            for (uint i = 0; i < PAIR; ++i) {
                float slots[SLOTS];
                T::multiply(x, y[i], slots);
                dots.at[r][i] = combine_slots<Add>(slots);
            }
        }
        return dots;
    }

    // The whole dot products: parts in the order in which the lanes' tree adds them, four at a time.
    Dots multiply(threadgroup const float4* queries, uint key) const {
        constexpr uint QUARTER = T::PARTS / 4, LEVELS = uint(QUARTER > 1) + uint(QUARTER > 2) + uint(QUARTER > 4);
        Dots sums, waiting[LEVELS + 1];
#pragma unroll 1
        for (uint i = 0; i < QUARTER; ++i) {
            uint part = 0;
            for (uint level = 0; level < LEVELS; ++level) {
                part |= (i >> level & 1) << (LEVELS - 1 - level);
            }
            sums = multiply(queries, key, part);
            sums.add(multiply(queries, key, part + 2 * QUARTER));
            Dots other = multiply(queries, key, part + QUARTER);
            other.add(multiply(queries, key, part + 3 * QUARTER));
            sums.add(other);
            bool waits = false;
#pragma unroll
            for (uint level = 0; level < LEVELS && !waits; ++level) {
                waits = (i >> level & 1) == 0;
                if (waits) {
                    waiting[level] = sums;
                } else {
                    sums.add(waiting[level]);
                }
            }
        }
        return sums;
    }
};

// The scores of a simdgroup's rows for its keys, of those from `first` on, which are staged from `place` on.
template <typename T>
inline void score_band(thread T& tile, thread const StagedKeys<T>& staged, uint band, uint first, uint place, KeyRange attended, KeyRange common) {
    constexpr uint COUNT = PAIR * 32;
    const uint key = first + tile.lane;
    if (!attended.meets(first, COUNT)) {
#pragma unroll
        for (uint i = 0; i < SCORED * PAIR; ++i) {
            tile.weights[(band + i / PAIR) * BLOCK + (key + i % PAIR * 32) % BLOCK] = -INFINITY;
        }
        return;
    }
    const Dots dots = staged.multiply(tile.queries + band * T::PARTS, place + tile.lane);
    if (common.holds_all(first, COUNT)) {
#pragma unroll
        for (uint i = 0; i < SCORED * PAIR; ++i) {
            tile.put(band + i / PAIR, key + i % PAIR * 32, dots.at[i / PAIR][i % PAIR], true);
        }
    } else {
#pragma unroll
        for (uint i = 0; i < SCORED * PAIR; ++i) {
            tile.put(band + i / PAIR, key + i % PAIR * 32, dots.at[i / PAIR][i % PAIR], false);
        }
    }
}

// The queries are shared.
template <uint COLUMNS, uint CHUNKS, typename T, typename Q>
inline void walk(thread T& tile, device Q* y) {
    constexpr uint OWN = T::SUMMED, BANDS = T::HEIGHT / SCORED;
    typedef StagedKeys<T> Staged;
    constant Params& p = tile.p;
    const Staged staged = {reinterpret_cast<threadgroup typename Staged::Part*>(tile.ranges + T::HEIGHT)};
    // A thread's totals, for which there are no registers.
    threadgroup float* totals = reinterpret_cast<threadgroup float*>(staged.parts + Staged::COUNT * T::PARTS) + tile.thread_index();
    const uint band = tile.simdgroup % BANDS * SCORED, place = tile.simdgroup / BANDS * PAIR * 32, row = tile.simdgroup * OWN;
    const KeyRange scored = tile.template attended_by<SCORED>(band), common = tile.template attended_by_all<SCORED>(band);
    const KeyRange summed = tile.template attended_by<OWN>(row);
    State states[OWN];
    for (uint r = 0; r < OWN; ++r) {
        states[r] = {-INFINITY, 0.0f};
    }
    for (uint i = 0; i < OWN * CHUNKS * COLUMNS; ++i) {
        totals[i * THREADS] = 0.0f;
    }
    for (uint block = tile.first_block(); block < tile.last_block(); ++block) {
        for (uint first = block * BLOCK; first < (block + 1) * BLOCK; first += Staged::COUNT) {
            // What was staged has been read, and so have the weights of the block before.
            threadgroup_barrier(mem_flags::mem_threadgroup);
            if (tile.keys.meets(first, Staged::COUNT)) {
                staged.copy(tile, first);
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
            score_band(tile, staged, band, first + place, place, scored, common);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        Factors factors[OWN];
#pragma unroll 1
        for (uint r = 0; r < OWN; ++r) {
            tile.adjust(row + r, block);
        }
#pragma unroll
        for (uint r = 0; r < OWN; ++r) {
            const State next = tile.weigh(row + r);
            factors[r] = Factors::of(states[r].greatest, next.greatest);
            states[r] = {Greatest::apply(states[r].greatest, next.greatest), factors[r].combine(states[r].sum, next.sum)};
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll 1
        for (uint chunk = 0; chunk < CHUNKS; ++chunk) {
            float sums[OWN][COLUMNS];
            for (uint i = 0; i < OWN * COLUMNS; ++i) {
                sums[i / COLUMNS][i % COLUMNS] = 0.0f;
            }
            typename T::Values coming;
            tile.find_values(chunk, coming);
            for (uint group = 0; group < BLOCK / GROUP; ++group) {
                const uint key = block * BLOCK + group * GROUP;
                if (summed.meets(key, GROUP)) {
                    float of_group[OWN][COLUMNS];
                    tile.stored = tile.newest.turn(key, tile.newest.stored(tile.keys));
                    tile.start_values(key, coming);
                    tile.sum_values(coming, group, row, of_group);
                    for (uint i = 0; i < OWN * COLUMNS; ++i) {
                        sums[i / COLUMNS][i % COLUMNS] += of_group[i / COLUMNS][i % COLUMNS];
                    }
                }
            }
#pragma unroll
            for (uint i = 0; i < OWN * COLUMNS; ++i) {
                threadgroup float& total = totals[(chunk * OWN * COLUMNS + i) * THREADS];
                total = factors[i / COLUMNS].combine(total, sums[i / COLUMNS][i % COLUMNS]);
            }
        }
    }
#pragma unroll
    for (uint r = 0; r < OWN; ++r) {
        const float scale = states[r].greatest == -INFINITY ? 0.0f : 1.0f / states[r].sum;
        device Q* to = y + row_of(p.y, tile.batch, tile.head(row + r), tile.query(row + r));
        for (uint i = 0; i < CHUNKS * COLUMNS; ++i) {
            const uint chunk = i / COLUMNS, column = chunk * T::WIDTH + tile.lane * COLUMNS + i % COLUMNS;
            if (tile.exists(row + r) && column < uint(p.value_width)) {
                to[column] = narrow<Q>(totals[((chunk * OWN + r) * COLUMNS + i % COLUMNS) * THREADS] * scale);
            }
        }
    }
}
