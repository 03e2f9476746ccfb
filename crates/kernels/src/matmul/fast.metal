// Fast products by simdgroup matrices: a threadgroup of four simdgroups sums a tile of EDGE x EDGE elements, DEPTH elements of k at a time from
// threadgroup memory. Operands of one type stay in it; others are widened to f32. Sums are f32.

constant constexpr uint EDGE = 64;
constant constexpr uint DEPTH = 32;
constant constexpr uint FAST_THREADS = 128;
// From row to row of a finished tile: spreads rows over the banks.
constant constexpr uint FAST_PITCH = EDGE + 4;

// What two operands are staged as.
template <typename A, typename B>
struct Staged {
    typedef float Type;
};

template <typename T>
struct Staged<T, T> {
    typedef T Type;
};

template <typename S>
struct Stage {
    // From line to line: a multiple of 16 bytes that spreads lines over the banks.
    static constexpr constant uint PITCH = DEPTH + 16 / sizeof(S);
    static constexpr constant uint ELEMENTS = EDGE * PITCH;

    template <typename T>
    static S convert(T x) { return S(widen(x)); }
    static S convert(S x) { return x; }

    // Elements k … k + DEPTH - 1 of EDGE lines; zeros where there are none.
    template <typename T>
    static void fill(threadgroup S* to, Lines<T> from, uint k, uint n, uint thread_index) {
        if (from.step == 1) {
            // Four threads a line.
            for (uint line = thread_index / 4; line < EDGE; line += FAST_THREADS / 4) {
                eight(to + line * PITCH + thread_index % 4 * SLOTS, from, line, k + thread_index % 4 * SLOTS, n);
            }
            return;
        }
        const uint line = thread_index % EDGE;
        for (uint i = thread_index / EDGE; i < DEPTH; i += FAST_THREADS / EDGE) {
            to[line * PITCH + i] = line <= from.last && k + i < n ? convert(*from.at(line, k + i)) : S(0);
        }
    }

    template <typename T>
    static void eight(threadgroup S* to, Lines<T> from, uint line, uint k, uint n) {
        const bool whole = line <= from.last && k + SLOTS <= n;
        if (sizeof(S) == sizeof(T) && from.wide && whole) {
            device const uint4* words = reinterpret_cast<device const uint4*>(from.at(line, k));
            for (uint i = 0; i < SLOTS * sizeof(S) / 16; ++i) {
                reinterpret_cast<threadgroup uint4*>(to)[i] = words[i];
            }
            return;
        }
        for (uint i = 0; i < SLOTS; ++i) {
            to[i] = line <= from.last && k + i < n ? convert(*from.at(line, k + i)) : S(0);
        }
    }
};

// A simdgroup's quarter of a tile.
struct FastTile {
    simdgroup_matrix<float, 8, 8> sums[4][4];

    FastTile() {
        for (uint i = 0; i < 16; ++i) {
            sums[i / 4][i % 4] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        }
    }

    // Adds the products of lines of `n` elements.
    template <typename A, typename B>
    void add(Lines<A> a, Lines<B> b, uint n, threadgroup float* shared, uint thread_index, uint simdgroup) {
        typedef typename Staged<A, B>::Type S;
        typedef Stage<S> Side;
        threadgroup S* left = reinterpret_cast<threadgroup S*>(shared);
        threadgroup S* right = left + Side::ELEMENTS;
        for (uint k = 0; k < n; k += DEPTH) {
            Side::fill(left, a, k, n, thread_index);
            Side::fill(right, b, k, n, thread_index);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            for (uint i = 0; i < DEPTH; i += 8) {
                multiply<S>(left + simdgroup / 2 * 32 * Side::PITCH + i, right + simdgroup % 2 * 32 * Side::PITCH + i);
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
        }
    }

    template <typename S>
    void multiply(threadgroup const S* left, threadgroup const S* right) {
        simdgroup_matrix<S, 8, 8> rows[4], columns[4];
        for (uint i = 0; i < 4; ++i) {
            simdgroup_load(rows[i], left + i * 8 * Stage<S>::PITCH, Stage<S>::PITCH);
            simdgroup_load(columns[i], right + i * 8 * Stage<S>::PITCH, Stage<S>::PITCH, ulong2(0), true);
        }
        for (uint r = 0; r < 4; ++r) {
            for (uint c = 0; c < 4; ++c) {
                simdgroup_multiply_accumulate(sums[r][c], rows[r], columns[c], sums[r][c]);
            }
        }
    }

    // The whole tile, row by row, for every thread.
    void share(threadgroup float* shared, uint simdgroup) {
        threadgroup float* quarter = shared + simdgroup / 2 * 32 * FAST_PITCH + simdgroup % 2 * 32;
        for (uint i = 0; i < 16; ++i) {
            simdgroup_store(sums[i / 4][i % 4], quarter + i / 4 * 8 * FAST_PITCH + i % 4 * 8, FAST_PITCH);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
};
