// A threadgroup's tile of strict dot products, for operands of any strides: 4 DOWN rows by 64 / DOWN columns, by 256 threads.
//
// 256 accumulators for each product would fill the registers with few products. So k is walked four times, each time the 64 neighbours of every
// 256 that belong to eight lanes of the canonical order. A thread owns one lane's eight slots for 4 x 2 products; the lines come through
// threadgroup memory, widened, the next ones under way meanwhile. The four parts are added as the xor tree does (16, 8), the eight lanes by shuffles
// (4, 2, 1), which leave one product to each thread.

constant constexpr uint PART = 64;
constant constexpr uint PARTS = 4;
constant constexpr uint STRICT_THREADS = 256;
// Words of four floats from line to line: lines start in different banks.
constant constexpr uint PITCH = PART / 4 + 1;

// One operand's COUNT lines in flight: a thread brings eight elements of up to TASKS lines.
template <typename T, uint COUNT>
struct Incoming {
    static constexpr constant uint TASKS = (COUNT * PART / SLOTS + STRICT_THREADS - 1) / STRICT_THREADS;

    device const T* next[TASKS];
    float slots[TASKS][SLOTS];
    // Neighbours in a line if that is how they lie in memory, else every eighth, so that threads beside each other read neighbouring lines.
    bool neighbours;
    bool wide;
    long step;

    Incoming(Lines<T> from) : neighbours(from.step == 1), wide(from.wide), step(from.step) {}

    uint line(uint at) const { return neighbours ? at / SLOTS : at % COUNT; }
    uint element(uint at) const { return neighbours ? at % SLOTS * SLOTS : at / COUNT; }

    // Starts at element k of each line.
    void begin(Lines<T> from, uint k, uint thread_index) {
        for (uint task = 0; task < TASKS; ++task) {
            const uint at = task * STRICT_THREADS + thread_index;
            next[task] = from.at(line(at), k + element(at));
        }
    }

    // Brings elements k … k + 63 of the lines.
    void fetch(uint k, uint n, float other, uint thread_index) {
        for (uint task = 0; task < TASKS; ++task) {
            const uint at = task * STRICT_THREADS + thread_index;
            if (at >= COUNT * PART / SLOTS) {
                return;
            }
            const uint first = k + element(at);
            if (wide && first + SLOTS <= n) {
                load_wide(next[task], slots[task]);
            } else {
                const uint stride = neighbours ? 1 : SLOTS;
                for (uint i = 0; i < SLOTS; ++i) {
                    slots[task][i] = first + i * stride < n ? widen(next[task][long(i * stride) * step]) : other;
                }
            }
            next[task] += PARTS * PART * step;
        }
    }

    // In a line, slots 0 … 3 of the eight lanes come before their slots 4 … 7.
    void put(threadgroup float4* lines, uint thread_index) const {
        for (uint task = 0; task < TASKS; ++task) {
            const uint at = task * STRICT_THREADS + thread_index;
            if (at >= COUNT * PART / SLOTS) {
                return;
            }
            thread const float* s = slots[task];
            if (neighbours) {
                threadgroup float4* to = lines + at / SLOTS * PITCH + at % SLOTS;
                to[0] = float4(s[0], s[1], s[2], s[3]);
                to[SLOTS] = float4(s[4], s[5], s[6], s[7]);
                continue;
            }
            const uint slot = at / COUNT;
            threadgroup float* to = reinterpret_cast<threadgroup float*>(lines + at % COUNT * PITCH + slot / 4 * SLOTS) + slot % 4;
            for (uint i = 0; i < SLOTS; ++i) {
                to[i * 4] = s[i];
            }
        }
    }
};

template <uint DOWN>
struct StrictTile {
    static constexpr constant uint ROWS = 4 * DOWN;
    static constexpr constant uint COLUMNS = 64 / DOWN;
    static constexpr constant uint PRODUCTS = 8;
    // Pairs of threads of a lane above each other.
    static constexpr constant uint PAIRS = DOWN > 1 ? DOWN / 2 : 1;

    typedef LaneSums<PRODUCTS, 8> Tree;

    uint lane;
    uint simdgroup;
    float slots[PRODUCTS][SLOTS];

    StrictTile(uint lane, uint simdgroup) : lane(lane), simdgroup(simdgroup) {}

    // The first row and column of the thread's products: a simdgroup's four threads of a lane are neighbours.
    uint first_row() const { return DOWN == 1 ? 0 : 4 * (lane / 8 % 2 + simdgroup % PAIRS * 2); }
    uint first_column() const { return 2 * (DOWN == 1 ? lane / 8 + simdgroup * 4 : lane / 16 + simdgroup / PAIRS * 2); }

    // The row and column of the product that the thread ends with.
    uint row() const { return first_row() + Tree::first(lane) / 2; }
    uint column() const { return first_column() + Tree::first(lane) % 2; }

    template <typename A, typename B>
    float product(Lines<A> a, Lines<B> b, uint n, threadgroup float* shared) {
        const uint thread_index = simdgroup * 32 + lane;
        // Half of the threads may suffice for an operand.
        const uint other_index = (thread_index + STRICT_THREADS / 2) % STRICT_THREADS;
        threadgroup float4* left = reinterpret_cast<threadgroup float4*>(shared);
        threadgroup float4* right = left + ROWS * PITCH;
        Incoming<A, ROWS> rows(a);
        Incoming<B, COLUMNS> columns(b);
        float totals[PRODUCTS], waiting[PRODUCTS];
        for (uint pass = 0; pass < PARTS; ++pass) {
            clear();
            // Parts 0, 2, 1, 3.
            uint k = (pass % 2 * 2 + pass / 2) * PART;
            rows.begin(a, k, thread_index);
            columns.begin(b, k, other_index);
            if (k < n) {
                // -0 times +0 changes no accumulator.
                rows.fetch(k, n, -0.0f, thread_index);
                columns.fetch(k, n, 0.0f, other_index);
            }
            for (; k < n; k += PARTS * PART) {
                rows.put(left, thread_index);
                columns.put(right, other_index);
                threadgroup_barrier(mem_flags::mem_threadgroup);
                if (k + PARTS * PART < n) {
                    rows.fetch(k + PARTS * PART, n, -0.0f, thread_index);
                    columns.fetch(k + PARTS * PART, n, 0.0f, other_index);
                }
                fold(left, right);
                threadgroup_barrier(mem_flags::mem_threadgroup);
            }
            for (uint i = 0; i < PRODUCTS; ++i) {
                const float sum = combine_slots<Add>(slots[i]);
                waiting[i] = pass % 2 == 0 ? sum : waiting[i] + sum;
                if (pass % 2 == 1) {
                    totals[i] = pass == 1 ? waiting[i] : totals[i] + waiting[i];
                }
            }
        }
        Tree::apply(totals, lane);
        return totals[0];
    }

    void clear() {
        for (uint i = 0; i < PRODUCTS * SLOTS; ++i) {
            slots[i / SLOTS][i % SLOTS] = 0.0f;
        }
    }

    void fold(threadgroup const float4* left, threadgroup const float4* right) {
        left += first_row() * PITCH + lane % 8;
        right += first_column() * PITCH + lane % 8;
        for (uint part = 0; part < 2; ++part) {
            const float4 w[2] = {right[part * 8], right[PITCH + part * 8]};
            for (uint r = 0; r < 4; ++r) {
                const float4 x = left[r * PITCH + part * 8];
                for (uint i = 0; i < SLOTS; ++i) {
                    thread float& slot = slots[r * 2 + i / 4][part * 4 + i % 4];
                    slot = fma(x[i % 4], w[i / 4][i % 4], slot);
                }
            }
        }
    }
};
