// A simdgroup's tile of strict dot products. Lane l owns the accumulators 8l … 8l + 7 of all of them: eight neighbouring elements of each line,
// 256 further on each time, serve the whole tile. Then a lane's slots pairwise and the lanes by the xor tree.

// `Left` and `Right` say where lines' elements come from, as Lines does.
template <typename Left, typename Right, uint ROWS, uint COLUMNS>
struct DotTile {
    // Elements from one visit to the next, and visits of b loaded ahead.
    static constexpr constant uint STRIDE = 32 * SLOTS;
    static constexpr constant uint AHEAD = 4 / COLUMNS;

    float slots[ROWS * COLUMNS][SLOTS];

    typedef LaneSums<ROWS * COLUMNS, 32> Tree;

    void fold(thread const float (&x)[ROWS][SLOTS], thread const float (&w)[COLUMNS][SLOTS]) {
        for (uint r = 0; r < ROWS; ++r) {
            for (uint c = 0; c < COLUMNS; ++c) {
                for (uint i = 0; i < SLOTS; ++i) {
                    slots[r * COLUMNS + c][i] = fma(x[r][i], w[c][i], slots[r * COLUMNS + c][i]);
                }
            }
        }
    }

    // The products of lines of `n` elements: number `Tree::first(lane)` for each lane, row by row.
    float product(Left a, Right b, uint n, uint lane) {
        float x[ROWS][SLOTS], w[COLUMNS][SLOTS];
        for (uint i = 0; i < ROWS * COLUMNS * SLOTS; ++i) {
            slots[i / SLOTS][i % SLOTS] = 0.0f;
        }
        uint k = lane * SLOTS;
        if (a.wide && b.wide) {
            float ahead[AHEAD][COLUMNS][SLOTS];
            for (; k + (AHEAD - 1) * STRIDE + SLOTS <= n; k += AHEAD * STRIDE) {
#pragma unroll
                for (uint i = 0; i < AHEAD * COLUMNS; ++i) {
                    b.load(i % COLUMNS, k + i / COLUMNS * STRIDE, ahead[i / COLUMNS][i % COLUMNS]);
                }
#pragma unroll
                for (uint i = 0; i < AHEAD; ++i) {
                    for (uint r = 0; r < ROWS; ++r) {
                        a.load(r, k + i * STRIDE, x[r]);
                    }
                    fold(x, ahead[i]);
                }
            }
        }
        for (; k < n; k += STRIDE) {
            for (uint c = 0; c < COLUMNS; ++c) {
                b.load(c, k, n, 0.0f, w[c]);
            }
            for (uint r = 0; r < ROWS; ++r) {
                // -0 times +0 changes no accumulator.
                a.load(r, k, n, -0.0f, x[r]);
            }
            fold(x, w);
        }
        float sums[ROWS * COLUMNS];
        for (uint i = 0; i < ROWS * COLUMNS; ++i) {
            sums[i] = combine_slots<Add>(slots[i]);
        }
        Tree::apply(sums, lane);
        return sums[0];
    }
};
