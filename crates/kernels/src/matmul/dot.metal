// A simdgroup's tile of strict dot products. Lane l owns the accumulators 8l … 8l + 7 of all of them: eight neighbouring elements of each line,
// 256 further on each time, serve the whole tile. Then a lane's slots pairwise and the lanes by the xor tree.

// Simdgroups of a threadgroup, each with a tile beside the others'.
constant constexpr uint SIMDGROUPS = 4;

// `Left` and `Right` say where lines' elements come from, as Lines does; those of `Right` are contiguous. Its elements of AHEAD visits are always on
// their way: eight words of 16 bytes, by default.
template <typename Left, typename Right, uint ROWS, uint COLUMNS, uint AHEAD = 16 / (sizeof(typename Right::Element) * COLUMNS)>
struct DotTile {
    typedef typename Right::Element B;

    // Elements from one visit to the next.
    static constexpr constant uint STRIDE = 32 * SLOTS;

    typedef LaneSums<ROWS * COLUMNS, 32> Tree;

    float slots[ROWS * COLUMNS][SLOTS];
    Words<B> ahead[AHEAD][COLUMNS];
    device const B* next[COLUMNS];
    bool wide;

    void fold(thread const float (&x)[ROWS][SLOTS], thread const float (&w)[COLUMNS][SLOTS]) {
        for (uint r = 0; r < ROWS; ++r) {
            for (uint c = 0; c < COLUMNS; ++c) {
                for (uint i = 0; i < SLOTS; ++i) {
                    slots[r * COLUMNS + c][i] = fma(x[r][i], w[c][i], slots[r * COLUMNS + c][i]);
                }
            }
        }
    }

    // Sends for visit `visit` of those that begin at `next`, element `k` of a line of `n`, if there are all its elements.
    void send(uint visit, uint k, uint n) {
        if (k + visit * STRIDE + SLOTS <= n) {
            for (uint c = 0; c < COLUMNS; ++c) {
                ahead[visit][c] = load_words(next[c] + visit * STRIDE);
            }
        }
    }

    // Sends for the first elements of b: what is done until `finish` costs no time.
    void start(Right b, uint n, uint lane) {
        wide = b.wide;
        for (uint c = 0; c < COLUMNS; ++c) {
            next[c] = b.at(c, lane * SLOTS);
        }
        if (wide) {
#pragma unroll
            for (uint i = 0; i < AHEAD; ++i) {
                send(i, lane * SLOTS, n);
            }
        }
    }

    // Folds elements k … k + 7, which came for visit `visit`.
    void fold_visit(uint visit, Left a, uint k) {
        float x[ROWS][SLOTS], w[COLUMNS][SLOTS];
        for (uint r = 0; r < ROWS; ++r) {
            a.load(r, k, x[r]);
        }
        for (uint c = 0; c < COLUMNS; ++c) {
            widen(ahead[visit][c], w[c]);
        }
        fold(x, w);
    }

    // Folds AHEAD visits from element k on, and sends for as many from element `from` on, which `next` is at.
    void fold_visits(Left a, uint k, uint from, uint n) {
#pragma unroll
        for (uint i = 0; i < AHEAD; ++i) {
            fold_visit(i, a, k + i * STRIDE);
            send(i, from, n);
        }
    }

    // Folds the lines, of `n` elements.
    void fold_lines(Left a, uint n, uint lane) {
        clear();
        uint k = lane * SLOTS;
        if (a.wide && wide) {
            for (; k + (AHEAD - 1) * STRIDE + SLOTS <= n; k += AHEAD * STRIDE) {
                advance(AHEAD);
                fold_visits(a, k, k + AHEAD * STRIDE, n);
            }
#pragma unroll
            for (uint i = 0; i < AHEAD - 1; ++i) {
                if (k + SLOTS <= n) {
                    fold_visit(i, a, k);
                    advance(1);
                    k += STRIDE;
                }
            }
        }
        for (; k < n; k += STRIDE) {
            float x[ROWS][SLOTS], w[COLUMNS][SLOTS];
            for (uint c = 0; c < COLUMNS; ++c) {
                for (uint i = 0; i < SLOTS; ++i) {
                    w[c][i] = k + i < n ? widen(next[c][i]) : 0.0f;
                }
            }
            advance(1);
            for (uint r = 0; r < ROWS; ++r) {
                // -0 times +0 changes no accumulator.
                a.load(r, k, n, -0.0f, x[r]);
            }
            fold(x, w);
        }
    }

    // The same. If there are `more`, starts another tile, with its first elements in flight before the last of these are folded.
    void fold_lines(Left a, uint n, uint lane, bool more, Right following) {
        if (!more) {
            return fold_lines(a, n, lane);
        }
        if (!(a.wide && wide && following.wide) || n == 0 || n % (AHEAD * STRIDE) != 0) {
            fold_lines(a, n, lane);
            return start(following, n, lane);
        }
        clear();
        uint k = lane * SLOTS;
        for (; k + AHEAD * STRIDE < n; k += AHEAD * STRIDE) {
            advance(AHEAD);
            fold_visits(a, k, k + AHEAD * STRIDE, n);
        }
        for (uint c = 0; c < COLUMNS; ++c) {
            next[c] = following.at(c, lane * SLOTS);
        }
        fold_visits(a, k, lane * SLOTS, n);
    }

    void clear() {
        for (uint i = 0; i < ROWS * COLUMNS * SLOTS; ++i) {
            slots[i / SLOTS][i % SLOTS] = 0.0f;
        }
    }

    // The products of the lines folded: number `Tree::first(lane)` for each lane, row by row.
    float total(uint lane) const {
        float sums[ROWS * COLUMNS];
        for (uint i = 0; i < ROWS * COLUMNS; ++i) {
            sums[i] = combine_slots<Add>(slots[i]);
        }
        Tree::apply(sums, lane);
        return sums[0];
    }

    void advance(uint visits) {
        for (uint c = 0; c < COLUMNS; ++c) {
            next[c] += visits * STRIDE;
        }
    }

    float finish(Left a, uint n, uint lane) {
        fold_lines(a, n, lane);
        return total(lane);
    }

    float product(Left a, Right b, uint n, uint lane) {
        start(b, n, lane);
        return finish(a, n, lane);
    }
};
