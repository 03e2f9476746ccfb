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

// A tile of dot products with packed rows by a simdgroup, eight lanes to each of four groups of COLUMNS rows of weights: lane l of the eight has the chunks
// c = l (mod 8), in ascending order.
template <typename F, typename X, uint ROWS, uint COLUMNS>
struct BlockTile {
    // Chunks of each row that a lane has in flight: 128 bytes of fields in all.
    static constexpr constant uint AHEAD = 32 / COLUMNS / (F::LOW + F::HIGH);

    typedef LaneSums<ROWS * COLUMNS, 8> Tree;

    PackedRows<COLUMNS> rows;
    bool wide;
    Packed<F> ahead[AHEAD][COLUMNS];
    float sums[ROWS * COLUMNS];

    void send(uint slot, uint chunk, uint chunks) {
        if (wide && chunk < chunks) {
            for (uint c = 0; c < COLUMNS; ++c) {
                ahead[slot][c].template load<Aligned>(PackedPlace<F>(rows.at[c], chunk, chunks), 0);
            }
        }
    }

    void start(PackedRows<COLUMNS> of, uint chunks, uint lane) {
        rows = of;
        wide = of.are_wide();
#pragma unroll
        for (uint i = 0; i < AHEAD; ++i) {
            send(i, lane % 8 + 8 * i, chunks);
        }
    }

    // Folds chunk `8 * block + lane`, which came to a slot, with rows of x from `row` on.
    void fold(uint slot, X x, uint row, uint block, uint lane) {
        Scales scales[COLUMNS];
        for (uint c = 0; c < COLUMNS; ++c) {
            scales[c] = ahead[slot][c].scales();
        }
        for (uint r = 0; r < ROWS; ++r) {
            uint pairs[16];
            x.load(row + r, block, lane, pairs);
            const float scale = x.scale(row + r, block, lane);
            const int2 total = x.total(row + r, block, lane);
            for (uint c = 0; c < COLUMNS; ++c) {
                const int2 dots = ahead[slot][c].dots(pairs, total);
                float sum = sums[r * COLUMNS + c];
                for (uint part = 0; part < 32 / F::GROUP; ++part) {
                    const int product = F::GROUP == 32 ? dots.x + dots.y : dots[part];
                    sum = fma(scales[c].scale[part] * scale, float(product), sum);
                    if (F::OFFSETS) {
                        const int of = F::GROUP == 32 ? total.x + total.y : total[part];
                        sum = fma(scales[c].offset[part] * scale, float(of), sum);
                    }
                }
                sums[r * COLUMNS + c] = sum;
            }
        }
    }

    // Folds the rows, of `chunks`; then, if there are others, they are in flight before the last of these are folded.
    void fold_rows(X x, uint row, uint chunks, uint lane, bool has_others, PackedRows<COLUMNS> others) {
        for (uint i = 0; i < ROWS * COLUMNS; ++i) {
            sums[i] = 0.0f;
        }
        const uint l = lane % 8;
        // The first lane's chunk.
        uint c = 0;
        for (; !wide && c + l < chunks; c += 8) {
            for (uint column = 0; column < COLUMNS; ++column) {
                ahead[0][column].template load<Anywhere>(PackedPlace<F>(rows.at[column], c + l, chunks), 0);
            }
            fold(0, x, row, c / 8, l);
        }
        // While a whole round follows.
        for (; c + 16 * AHEAD <= chunks; c += 8 * AHEAD) {
#pragma unroll
            for (uint i = 0; i < AHEAD; ++i) {
                fold(i, x, row, c / 8 + i, l);
                for (uint column = 0; column < COLUMNS; ++column) {
                    ahead[i][column].template load<Aligned>(PackedPlace<F>(rows.at[column], c + 8 * AHEAD + l, chunks), i);
                }
            }
        }
        bool is_last = false;
        while (!is_last) {
            is_last = c + 8 * AHEAD >= chunks;
            if (is_last && has_others) {
                rows = others;
                wide = others.are_wide();
            }
#pragma unroll
            for (uint i = 0; i < AHEAD; ++i) {
                if (c + 8 * i + l < chunks) {
                    fold(i, x, row, c / 8 + i, l);
                }
                if (!is_last || has_others) {
                    send(i, (is_last ? 0 : c + 8 * AHEAD) + 8 * i + l, chunks);
                }
            }
            c += 8 * AHEAD;
        }
    }

    // The products: number `Tree::first(lane)` for each lane, row by row.
    float total(uint lane) {
        Tree::apply(sums, lane);
        return sums[0];
    }
};
