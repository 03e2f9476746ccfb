// A threadgroup's block of strict products of 16-bit operands, for operands of any strides: 32 rows by 32 columns, by 256 threads. Blocks of all lines come
// through threadgroup memory, as integers, the next ones under way meanwhile; a thread has 2 x 2 products.
struct FixedBlock {
    static constexpr constant uint EDGE = 32;
    static constexpr constant uint THREADS = 256;
    // Pieces of a block, and words of 16 bytes from line to line: lines start in different banks.
    static constexpr constant uint PIECES = FIXED_BLOCK / SLOTS;
    static constexpr constant uint PITCH = PIECES + 1;
    static constexpr constant uint TURNS = EDGE * PIECES / THREADS;
    static constexpr constant uint RESULTS = 4;

    uint lane;
    uint simdgroup;
    float sums[RESULTS];

    FixedBlock(uint lane, uint simdgroup) : lane(lane), simdgroup(simdgroup) {}

    uint row(uint result) const { return simdgroup / 2 * 8 + lane / 8 + result / 2 * 4; }
    uint column(uint result) const { return simdgroup % 2 * 16 + lane % 8 + result % 2 * 8; }

    // What a thread brings: in each turn a piece of a row and one of a column.
    uint line(uint turn) const { return (turn * THREADS + 32 * simdgroup + lane) / PIECES; }
    uint piece() const { return lane % PIECES; }

    template <typename T>
    void fetch(Lines<T> from, uint k, uint n, thread float (&values)[TURNS][1][SLOTS]) const {
        for (uint turn = 0; turn < TURNS; ++turn) {
            from.load(line(turn), k + piece() * SLOTS, n, 0.0f, values[turn][0]);
        }
    }

    // `shared` has room for the words and units of all lines.
    template <typename A, typename B>
    void products(Lines<A> a, Lines<B> b, uint n, threadgroup float4* shared) {
        threadgroup uint4* words = reinterpret_cast<threadgroup uint4*>(shared);
        threadgroup float* units = reinterpret_cast<threadgroup float*>(words + 2 * EDGE * PITCH);
        float left[TURNS][1][SLOTS], right[TURNS][1][SLOTS];
        for (uint i = 0; i < RESULTS; ++i) {
            sums[i] = 0.0f;
        }
        fetch(a, 0, n, left);
        fetch(b, 0, n, right);
        for (uint k = 0; k < n; k += FIXED_BLOCK) {
            for (uint turn = 0; turn < TURNS; ++turn) {
                const LeftPiece<1> x = left_piece<A>(left[turn]);
                const RightPiece<1> w = right_piece<B>(right[turn], largest_of(right[turn]));
                const uint of_row = line(turn), of_column = EDGE + line(turn);
                words[of_row * PITCH + piece()] = uint4(x.high[0][0], x.high[0][1], x.low[0][0], x.low[0][1]);
                words[of_column * PITCH + piece()] = uint4(w.pairs[0][0], w.pairs[0][1], w.pairs[0][2], w.pairs[0][3]);
                if (piece() == 0) {
                    units[of_row] = x.unit;
                    units[of_column] = w.unit;
                }
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
            if (k + FIXED_BLOCK < n) {
                fetch(a, k + FIXED_BLOCK, n, left);
                fetch(b, k + FIXED_BLOCK, n, right);
            }
            add_block(words, units);
            threadgroup_barrier(mem_flags::mem_threadgroup);
        }
    }

    void add_block(threadgroup const uint4* words, threadgroup const float* units) {
        int high[RESULTS] = {}, low[RESULTS] = {};
        for (uint piece = 0; piece < PIECES; ++piece) {
            for (uint r = 0; r < 2; ++r) {
                const uint4 x = words[row(2 * r) * PITCH + piece];
                const uint highs[2] = {x[0], x[1]}, lows[2] = {x[2], x[3]};
                for (uint c = 0; c < 2; ++c) {
                    const uint4 w = words[(EDGE + column(c)) * PITCH + piece];
                    const uint pairs[4] = {w[0], w[1], w[2], w[3]};
                    add_products(high[2 * r + c], low[2 * r + c], highs, lows, pairs);
                }
            }
        }
        for (uint i = 0; i < RESULTS; ++i) {
            sums[i] = sums[i] + rounded_once(high[i], low[i]) * (units[row(i)] * units[EDGE + column(i)]);
        }
    }
};
