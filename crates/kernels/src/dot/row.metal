// A row in threadgroup memory as integers, words of eight, upper bytes before lower ones, and the units of blocks. The words are placed so that lanes take
// neighbours: of each eight blocks first every lane's first eight.
struct FixedRow {
    typedef float Element;

    // Eights of a lane, which has a quarter of a block.
    static constexpr constant uint EIGHTS = 4;
    static constexpr constant uint SPAN = 32 * EIGHTS * SLOTS;

    threadgroup uint4* words;
    threadgroup float* units;

    FixedRow(threadgroup float4* memory, uint n)
        : words(reinterpret_cast<threadgroup uint4*>(memory)), units(reinterpret_cast<threadgroup float*>(memory + whole(n) / SLOTS)) {}

    // Elements of whole visits of a simdgroup.
    static uint whole(uint n) { return (n + SPAN - 1) / SPAN * SPAN; }

    void store(uint k, LeftPiece<1> piece) const {
        const uint eight = k % FIXED_BLOCK / SLOTS, lane = k % SPAN / FIXED_BLOCK * 4 + eight % 4;
        words[k / SPAN * (SPAN / SLOTS) + eight / 4 * 32 + lane] = uint4(piece.high[0][0], piece.high[0][1], piece.low[0][0], piece.low[0][1]);
        if (eight == 0) {
            units[k / FIXED_BLOCK] = piece.unit;
        }
    }

    // Zeros for what the last visit has beyond the row's end, where only the row is stored.
    void fill(uint n, uint thread_index, uint threads) const {
        for (uint k = (n + SLOTS - 1) / SLOTS * SLOTS + SLOTS * thread_index; k < whole(n); k += SLOTS * threads) {
            store(k, LeftPiece<1>{});
        }
    }
};

inline LeftPiece<FixedRow::EIGHTS> load_left(FixedRow row, uint, uint from, uint, uint lane) {
    LeftPiece<FixedRow::EIGHTS> piece;
    for (uint i = 0; i < FixedRow::EIGHTS; ++i) {
        const uint4 word = row.words[from / SLOTS + 32 * i + lane];
        piece.high[i][0] = word[0];
        piece.high[i][1] = word[1];
        piece.low[i][0] = word[2];
        piece.low[i][1] = word[3];
    }
    piece.unit = row.units[from / FIXED_BLOCK + lane / 4];
    return piece;
}

// What threadgroups keep of a row.
template <bool FIXED>
struct KeptRow {
    typedef SharedRow Type;

    template <typename Row>
    static SharedRow share(Row from, uint n, uint thread_index, uint threads, threadgroup float4* memory) {
        return share_row(from, n, thread_index, threads, memory);
    }
};

template <>
struct KeptRow<true> {
    typedef FixedRow Type;

    template <typename Row>
    static FixedRow share(Row from, uint n, uint thread_index, uint threads, threadgroup float4* memory) {
        const FixedRow row(memory, n);
        const uint stride = SLOTS * threads, end = FixedRow::whole(n);
        for (uint first = SLOTS * thread_index; first < end; first += KEPT * stride) {
            float kept[KEPT][SLOTS];
            visit(from, first, stride, 0.0f, kept);
            for (uint v = 0; v < KEPT && first + v * stride < end; ++v) {
                row.store(first + v * stride, left_eight<typename Row::Element>(kept[v]));
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        return row;
    }
};

template <uint COLUMNS, typename Right, uint AHEAD>
struct Dots<true, FixedRow, Right, 1, COLUMNS, AHEAD> {
    typedef FixedTile<FixedRow, Right, 1, COLUMNS, FixedRow::EIGHTS, AHEAD> Tile;
};
