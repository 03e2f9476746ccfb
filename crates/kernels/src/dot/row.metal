// A row in threadgroup memory, as SharedRow, or as integers: words of eight, upper bytes before lower ones, and the units of blocks.
struct FixedRow {
    typedef float Element;

    threadgroup uint4* words;
    threadgroup float* units;

    FixedRow(threadgroup float4* memory, uint n)
        : words(reinterpret_cast<threadgroup uint4*>(memory)), units(reinterpret_cast<threadgroup float*>(memory + whole(n) / SLOTS)) {}

    // Elements of whole visits of a simdgroup.
    static uint whole(uint n) { return (n + 32 * SLOTS - 1) / (32 * SLOTS) * (32 * SLOTS); }

    void store(uint k, LeftPiece piece) const {
        words[k / SLOTS] = uint4(piece.high[0], piece.high[1], piece.low[0], piece.low[1]);
        if (k % FIXED_BLOCK == 0) {
            units[k / FIXED_BLOCK] = piece.unit;
        }
    }
};

inline LeftPiece load_left(FixedRow from, uint, uint k, uint n) {
    // A lane beyond the line's end may have a block with others that are not.
    const uint4 words = k < n ? from.words[k / SLOTS] : uint4(0);
    return {{words[0], words[1]}, {words[2], words[3]}, k / FIXED_BLOCK * FIXED_BLOCK < n ? from.units[k / FIXED_BLOCK] : 0.0f};
}

// What threadgroups keep of a row.
template <bool FIXED>
struct KeptRow {
    typedef SharedRow Type;

    template <typename T>
    static SharedRow share(RowReader<T> from, uint n, uint thread_index, uint threads, threadgroup float4* memory) {
        return share_row(from, n, thread_index, threads, memory);
    }
};

template <>
struct KeptRow<true> {
    typedef FixedRow Type;

    template <typename T>
    static FixedRow share(RowReader<T> from, uint n, uint thread_index, uint threads, threadgroup float4* memory) {
        const FixedRow row(memory, n);
        const uint stride = SLOTS * threads, end = FixedRow::whole(n);
        for (uint first = SLOTS * thread_index; first < end; first += KEPT * stride) {
            float kept[KEPT][SLOTS];
            Visits<T>(from, first, stride).elements(0.0f, kept);
            for (uint v = 0; v < KEPT && first + v * stride < end; ++v) {
                row.store(first + v * stride, left_piece<T>(kept[v]));
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        return row;
    }
};
