// Fast products by simdgroup matrices: a threadgroup of four simdgroups sums a tile of EDGE x EDGE elements, DEPTH elements of k at a time from
// threadgroup memory, each operand in its own type. Sums are f32.

constant constexpr uint EDGE = 64;
constant constexpr uint DEPTH = 32;
constant constexpr uint FAST_THREADS = 128;
// Rows and columns of a simdgroup's part of a tile; from row to row of what it shares of that: spreads rows over the banks.
constant constexpr uint PART = 32;
constant constexpr uint STRIP_PITCH = PART + 4;

template <typename T>
struct Stage {
    // From line to line: a multiple of 16 bytes that spreads lines over the banks.
    static constexpr constant uint PITCH = DEPTH + 16 / sizeof(T);
    static constexpr constant uint ELEMENTS = EDGE * PITCH;

    // Elements k … k + DEPTH - 1 of EDGE lines; zeros where there are none.
    static void fill(threadgroup T* to, Lines<T> from, uint k, uint n, uint thread_index) {
        if (from.step == 1) {
            // Four threads a line.
            for (uint line = thread_index / 4; line < EDGE; line += FAST_THREADS / 4) {
                eight(to + line * PITCH + thread_index % 4 * SLOTS, from, line, k + thread_index % 4 * SLOTS, n);
            }
            return;
        }
        const uint line = thread_index % EDGE;
        for (uint i = thread_index / EDGE; i < DEPTH; i += FAST_THREADS / EDGE) {
            to[line * PITCH + i] = line <= from.last && k + i < n ? *from.at(line, k + i) : T(0);
        }
    }

    static void eight(threadgroup T* to, Lines<T> from, uint line, uint k, uint n) {
        if (from.wide && line <= from.last && k + SLOTS <= n) {
            const Words<T> words = load_words(from.at(line, k));
            for (uint i = 0; i < sizeof(T) / 2; ++i) {
                reinterpret_cast<threadgroup uint4*>(to)[i] = words.at[i];
            }
            return;
        }
        for (uint i = 0; i < SLOTS; ++i) {
            to[i] = line <= from.last && k + i < n ? *from.at(line, k + i) : T(0);
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
        threadgroup A* left = reinterpret_cast<threadgroup A*>(shared);
        threadgroup B* right = reinterpret_cast<threadgroup B*>(left + Stage<A>::ELEMENTS);
        for (uint k = 0; k < n; k += DEPTH) {
            Stage<A>::fill(left, a, k, n, thread_index);
            Stage<B>::fill(right, b, k, n, thread_index);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            for (uint i = 0; i < DEPTH; i += 8) {
                multiply(left + first_row(simdgroup) * Stage<A>::PITCH + i, right + first_column(simdgroup) * Stage<B>::PITCH + i);
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
        }
    }

    template <typename A, typename B>
    void multiply(threadgroup const A* left, threadgroup const B* right) {
        simdgroup_matrix<A, 8, 8> rows[4];
        simdgroup_matrix<B, 8, 8> columns[4];
        for (uint i = 0; i < 4; ++i) {
            simdgroup_load(rows[i], left + i * 8 * Stage<A>::PITCH, Stage<A>::PITCH);
            simdgroup_load(columns[i], right + i * 8 * Stage<B>::PITCH, Stage<B>::PITCH, ulong2(0), true);
        }
        for (uint r = 0; r < 4; ++r) {
            for (uint c = 0; c < 4; ++c) {
                simdgroup_multiply_accumulate(sums[r][c], rows[r], columns[c], sums[r][c]);
            }
        }
    }

    static uint first_row(uint simdgroup) { return simdgroup / 2 * PART; }
    static uint first_column(uint simdgroup) { return simdgroup % 2 * PART; }

    // Leaves eight rows, from 8 `rows` on, of the simdgroup's part in a strip of its own; lane l takes the elements of column l.
    void share(uint rows, threadgroup float* strip) {
        simdgroup_barrier(mem_flags::mem_threadgroup);
        for (uint i = 0; i < 4; ++i) {
            simdgroup_store(sums[rows][i], strip + i * 8, STRIP_PITCH);
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
    }
};
