// Packed rows that lie anywhere.
template <uint COUNT>
struct PackedRows {
    device const uchar* at[COUNT];

    // Whether all begin at multiples of 16 bytes; a row's length is one.
    bool are_wide() const {
        bool wide = true;
        for (uint i = 0; i < COUNT; ++i) {
            wide = wide && is_wide(at[i]);
        }
        return wide;
    }
};

// A tile of dot products with packed rows by a simdgroup, sixteen lanes to each of two groups of COLUMNS rows of weights: lanes l and l + 8 of the sixteen
// share the chunks c = l (mod 8), in ascending order, and end with the same sums. AHEAD of them are always in flight.
template <typename F, typename X, uint ROWS, uint COLUMNS, uint AHEAD>
struct BlockTile {
    typedef LaneSums<ROWS * COLUMNS, 8> Tree;

    PackedRows<COLUMNS> rows;
    bool wide;
    Packed<F> ahead[AHEAD][COLUMNS];
    float sums[ROWS * COLUMNS];

    // Sends for eight chunks from `chunk` on, if there are any; the last stands for those after it.
    void send(uint slot, uint chunk, uint chunks, uint lane) {
        if (wide && chunk < chunks) {
            for (uint c = 0; c < COLUMNS; ++c) {
                ahead[slot][c].template load<Aligned>(rows.at[c], min(chunk + lane % 8, chunks - 1), chunks, lane / 8 % 2);
            }
        }
    }

    void start(PackedRows<COLUMNS> of, uint chunks, uint lane) {
        rows = of;
        wide = of.are_wide();
#pragma unroll
        for (uint i = 0; i < AHEAD; ++i) {
            send(i, 8 * i, chunks, lane);
        }
    }

    // All lanes together: they exchange what they have. Nothing changes where the chunk does not exist.
    void fold(uint slot, X x, uint row, uint chunk, bool exists, uint part) {
        Scales scales[COLUMNS];
        for (uint c = 0; c < COLUMNS; ++c) {
            scales[c] = ahead[slot][c].scales();
        }
        for (uint r = 0; r < ROWS; ++r) {
            uint pairs[8];
            x.load(row + r, chunk, part, pairs);
            const float scale = x.scale(row + r, chunk);
            const int2 total = x.total(row + r, chunk);
            for (uint c = 0; c < COLUMNS; ++c) {
                const int2 dots = ahead[slot][c].dots(pairs);
                float sum = sums[r * COLUMNS + c];
                for (uint half_of = 0; half_of < 32 / F::GROUP; ++half_of) {
                    const int of = F::GROUP == 32 ? total.x + total.y : total[half_of];
                    int product = F::GROUP == 32 ? dots.x + dots.y : dots[half_of];
                    product += simd_shuffle_xor(product, 8) - F::ZERO * of;
                    sum = fma(scales[c].scale[half_of] * scale, float(product), sum);
                    if (F::OFFSETS) {
                        sum = fma(scales[c].offset[half_of] * scale, float(of), sum);
                    }
                }
                sums[r * COLUMNS + c] = exists ? sum : sums[r * COLUMNS + c];
            }
        }
    }

    // Folds the rows, of `chunks`, with those of x from `row` on; then, if there are others, they are in flight before the last of these are folded.
    void fold_rows(X x, uint row, uint chunks, uint lane, bool has_others, PackedRows<COLUMNS> others) {
        for (uint i = 0; i < ROWS * COLUMNS; ++i) {
            sums[i] = 0.0f;
        }
        const uint first = lane % 8, part = lane / 8 % 2;
        // The first lane's chunk.
        uint c = 0;
        for (; !wide && c < chunks; c += 8) {
            const uint chunk = min(c + first, chunks - 1);
            for (uint column = 0; column < COLUMNS; ++column) {
                ahead[0][column].template load<Anywhere>(rows.at[column], chunk, chunks, part);
            }
            fold(0, x, row, chunk, c + first < chunks, part);
        }
        for (; c + 8 * AHEAD < chunks; c += 8 * AHEAD) {
#pragma unroll
            for (uint i = 0; i < AHEAD; ++i) {
                fold(i, x, row, c + first + 8 * i, true, part);
                send(i, c + 8 * (AHEAD + i), chunks, lane);
            }
        }
        if (has_others) {
            rows = others;
            wide = others.are_wide();
        }
#pragma unroll
        for (uint i = 0; i < AHEAD; ++i) {
            if (c + 8 * i < chunks) {
                fold(i, x, row, min(c + first + 8 * i, chunks - 1), c + first + 8 * i < chunks, part);
            }
            if (has_others) {
                send(i, 8 * i, chunks, lane);
            }
        }
    }

    // The products: number `Tree::first(lane)` for each lane, row by row.
    float total(uint lane) {
        Tree::apply(sums, lane);
        return sums[0];
    }
};
