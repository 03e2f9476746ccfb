// The canonical order of row reductions. A row is shared by T(n) threads; thread t owns the accumulators 8t … 8t + 7 of 8 T, and accumulator j
// folds the elements k = j (mod 8 T) in ascending order. Then a thread's accumulators pairwise, the lanes of a simdgroup by an xor
// tree (16, 8, 4, 2, 1), the simdgroups in index order.

struct Add {
    static constexpr constant float identity = 0.0f;
    static float apply(float a, float b) { return a + b; }
};

// The larger of two numbers; either if one is a NaN.
struct Larger {
    static constexpr constant float identity = -INFINITY;
    static float apply(float a, float b) { return a > b ? a : b; }
};

// A thread's place in the threadgroup that shares a row.
struct RowThread {
    uint index;
    uint count;
    uint lane;
    uint simdgroup;
};

template <typename Op>
inline float combine_slots(thread const float* s) {
    return Op::apply(Op::apply(Op::apply(s[0], s[1]), Op::apply(s[2], s[3])), Op::apply(Op::apply(s[4], s[5]), Op::apply(s[6], s[7])));
}

// Lane 0 holds the result in canonical order.
template <typename Op>
inline float combine_lanes(float value) {
    for (ushort mask = 16; mask > 0; mask >>= 1) {
        value = Op::apply(value, simd_shuffle_xor(value, mask));
    }
    return value;
}

// The row's result, for every thread. `partial` holds one float for each simdgroup and is not to be written again before a barrier.
template <typename Op>
inline float combine_row(thread const float* slots, RowThread t, threadgroup float* partial) {
    const float value = simd_broadcast_first(combine_lanes<Op>(combine_slots<Op>(slots)));
    if (t.count == 32) {
        return value;
    }
    if (t.lane == 0) {
        partial[t.simdgroup] = value;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float total = partial[0];
    for (uint g = 1; g < t.count / 32; ++g) {
        total = Op::apply(total, partial[g]);
    }
    return total;
}

// Elements of a row, `stride` apart, eight at a time.
template <typename T>
struct RowReader {
    device const T* row;
    ulong stride;
    uint n;
    bool wide;

    RowReader(device const T* start, ulong stride, uint n) : row(start), stride(stride), n(n), wide(stride == 1 && is_wide(start)) {}

    // Elements k … k + 7; `other` beyond the end.
    void load(uint k, float other, thread float* slots) const {
        if (wide && k + SLOTS <= n) {
            load_wide(row + k, slots);
            return;
        }
        for (uint i = 0; i < SLOTS; ++i) {
            slots[i] = k + i < n ? widen(row[(k + i) * stride]) : other;
        }
    }
};

// The same for writing.
template <typename T>
struct RowWriter {
    device T* row;
    ulong stride;
    uint n;
    bool wide;

    RowWriter(device T* start, ulong stride, uint n) : row(start), stride(stride), n(n), wide(stride == 1 && is_wide(start)) {}

    void store(uint k, thread const float* slots) const {
        if (wide && k + SLOTS <= n) {
            store_wide(row + k, slots);
            return;
        }
        for (uint i = 0; i < SLOTS && k + i < n; ++i) {
            row[(k + i) * stride] = narrow<T>(slots[i]);
        }
    }
};
