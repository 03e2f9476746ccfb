// A threadgroup's block of strict dot products where there are many, for operands of any strides: 64 rows by 64 columns, by 256 threads.
//
// The canonical lanes are taken one after another, in the order in which the xor tree joins them: of each of its levels one sum waits at most. A lane's
// elements, eight of every 256, come through threadgroup memory, widened, the next ones under way meanwhile. A thread owns four of the lane's eight slots
// for 8 x 4 products, the thread beside it the other four; then each keeps the sums of half of the products.

constant constexpr uint BLOCK_THREADS = 256;
// Elements of a line from one visit to a lane to the next.
constant constexpr uint VISIT = 32 * SLOTS;
constant constexpr uint QUAD = 4;

// A lane's elements of COUNT lines in flight, VISITS visits at once: a thread brings four neighbours TASKS times.
template <typename T, uint COUNT, uint VISITS>
struct IncomingQuads {
    static constexpr constant uint TASKS = COUNT * 2 * VISITS / BLOCK_THREADS;

    device const T* start[TASKS];
    uint element[TASKS];
    uint place[TASKS];
    Piece<T, QUAD> quads[TASKS];
    bool wide;
    long step;

    // Threads beside each other bring neighbours in a line if that is how they lie in memory, else neighbouring lines.
    IncomingQuads(Lines<T> from, uint thread_index) : wide(from.wide), step(from.step) {
#pragma unroll
        for (uint task = 0; task < TASKS; ++task) {
            const uint at = task * BLOCK_THREADS + thread_index, visit = at / (2 * COUNT);
            const uint line = step == 1 ? at / 2 % COUNT : at % COUNT, side = step == 1 ? at % 2 : at / COUNT % 2;
            element[task] = visit * VISIT + side * QUAD;
            place[task] = (visit * COUNT + line) * 2 + side;
            start[task] = from.at(line, element[task]);
        }
    }

    // Sends for elements k … k + 7 of each visit; `other` beyond the end. `whole` if lines are wide and have all of them.
    void fetch(uint k, uint n, float other, bool whole) {
        if (whole) {
#pragma unroll
            for (uint task = 0; task < TASKS; ++task) {
                quads[task] = *reinterpret_cast<device const Piece<T, QUAD>*>(start[task] + k);
            }
            return;
        }
#pragma unroll
        for (uint task = 0; task < TASKS; ++task) {
            float values[QUAD];
            for (uint i = 0; i < QUAD; ++i) {
                values[i] = k + element[task] + i < n ? widen(start[task][long(k + i) * step]) : other;
            }
            narrow(values, quads[task]);
        }
    }

    void put(threadgroup float4* lines) const {
#pragma unroll
        for (uint task = 0; task < TASKS; ++task) {
            float values[QUAD];
            widen(quads[task], values);
            lines[place[task]] = float4(values[0], values[1], values[2], values[3]);
        }
    }
};

template <uint VISITS>
struct StrictBlock {
    static constexpr constant uint EDGE = 64;
    // Words of four floats of an operand's part in threadgroup memory.
    static constexpr constant uint PART = EDGE * 2 * VISITS;
    // Rows and columns of a pair of threads, each four from the next.
    static constexpr constant uint HIGH = 8;
    static constexpr constant uint BROAD = 4;
    static constexpr constant uint APART = 4;
    static constexpr constant uint PRODUCTS = HIGH * BROAD;
    // Elements of a line that are gone through with what is brought at once.
    static constexpr constant uint SPAN = VISIT * VISITS;
    static constexpr constant uint LANES = 32;
    static constexpr constant uint LEVELS = 5;

    typedef LaneSums<PRODUCTS, 2> Sides;
    static constexpr constant uint RESULTS = Sides::HELD;

    uint lane;
    uint simdgroup;
    float slots[PRODUCTS][QUAD];

    StrictBlock(uint lane, uint simdgroup) : lane(lane), simdgroup(simdgroup) {}

    // A simdgroup has 32 rows and 16 columns.
    uint first_row() const { return simdgroup / 4 * (HIGH * APART) + lane / 2 % APART; }
    uint first_column() const { return simdgroup % 4 * (BROAD * APART) + lane / 8; }

    // The row and column of one of the results that the thread ends with.
    uint row(uint result) const { return first_row() + (Sides::first(lane) + result) / BROAD * APART; }
    uint column(uint result) const { return first_column() + (Sides::first(lane) + result) % BROAD * APART; }

    // The products of lines of `n` elements; `shared` has room for two parts of each operand.
    template <typename A, typename B>
    void products(Lines<A> a, Lines<B> b, uint n, threadgroup float4* shared, thread float (&results)[RESULTS]) {
        const uint thread_index = simdgroup * 32 + lane, spans = max(1u, (n + SPAN - 1) / SPAN);
        IncomingQuads<A, EDGE, VISITS> rows(a, thread_index);
        IncomingQuads<B, EDGE, VISITS> columns(b, thread_index);
        float waiting[LEVELS + 1][RESULTS];
        uint k = 0, at = 0;
        fetch(rows, columns, k, n);
        put(rows, columns, shared);
        for (uint turn = 0; turn < LANES; ++turn) {
            const uint following = lane_of(turn + 1) * SLOTS;
            const bool last = turn + 1 == LANES;
            step<true>(rows, columns, shared, at, spans > 1 ? k + SPAN : following, spans > 1 || !last, n);
            at ^= 1;
            for (uint span = 2; span <= spans; ++span) {
                k += SPAN;
                step<false>(rows, columns, shared, at, span < spans ? k + SPAN : following, span < spans || !last, n);
                at ^= 1;
            }
            k = following;
            float sums[PRODUCTS];
            for (uint i = 0; i < PRODUCTS; ++i) {
                sums[i] = (slots[i][0] + slots[i][1]) + (slots[i][2] + slots[i][3]);
            }
            Sides::apply(sums, lane);
            uint level = 0;
            for (; (turn >> level & 1) != 0; ++level) {
                for (uint i = 0; i < RESULTS; ++i) {
                    sums[i] += waiting[level][i];
                }
            }
            for (uint i = 0; i < RESULTS; ++i) {
                waiting[level][i] = sums[i];
            }
        }
        for (uint i = 0; i < RESULTS; ++i) {
            results[i] = waiting[LEVELS][i];
        }
    }

    // Folds what is in buffer `at` while elements from k on, if there are more, come to the other one.
    template <bool FIRST, typename A, typename B>
    void step(thread IncomingQuads<A, EDGE, VISITS>& rows, thread IncomingQuads<B, EDGE, VISITS>& columns, threadgroup float4* shared, uint at, uint k,
              bool more, uint n) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (more) {
            fetch(rows, columns, k, n);
        }
        fold<FIRST>(shared + at * (2 * PART));
        if (more) {
            put(rows, columns, shared + (1 - at) * (2 * PART));
        }
    }

    // The lane whose turn it is: the bits of its number are those of the turn in reverse.
    static uint lane_of(uint turn) { return reverse_bits(turn) >> (32 - LEVELS); }

    // -0 times +0 changes no accumulator.
    template <typename A, typename B>
    static void fetch(thread IncomingQuads<A, EDGE, VISITS>& rows, thread IncomingQuads<B, EDGE, VISITS>& columns, uint k, uint n) {
        const bool whole = rows.wide && columns.wide && k + (SPAN - VISIT + SLOTS) <= n;
        rows.fetch(k, n, -0.0f, whole);
        columns.fetch(k, n, 0.0f, whole);
    }

    template <typename A, typename B>
    static void put(thread const IncomingQuads<A, EDGE, VISITS>& rows, thread const IncomingQuads<B, EDGE, VISITS>& columns, threadgroup float4* part) {
        rows.put(part);
        columns.put(part + PART);
    }

    // Folds a part; the first of a lane begins its slots.
    template <bool FIRST>
    void fold(threadgroup const float4* part) {
        threadgroup const float4* left = part + first_row() * 2 + lane % 2;
        threadgroup const float4* right = part + PART + first_column() * 2 + lane % 2;
#pragma unroll
        for (uint visit = 0; visit < VISITS; ++visit) {
            float4 w[BROAD];
            for (uint c = 0; c < BROAD; ++c) {
                w[c] = right[(visit * EDGE + c * APART) * 2];
            }
            for (uint r = 0; r < HIGH; ++r) {
                const float4 x = left[(visit * EDGE + r * APART) * 2];
                for (uint i = 0; i < BROAD * QUAD; ++i) {
                    thread float& slot = slots[r * BROAD + i / QUAD][i % QUAD];
                    slot = fma(x[i % QUAD], w[i / QUAD][i % QUAD], FIRST && visit == 0 ? 0.0f : slot);
                }
            }
        }
    }
};
