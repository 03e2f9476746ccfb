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
// c = l (mod 8), in ascending order. Chunks are always in flight.
template <typename F, typename X, uint ROWS, uint COLUMNS>
struct BlockTile {
    // Chunks of each row that a lane has in flight: 128 bytes of quantised fields, or 64 of several rows.
    static constexpr constant uint AHEAD = (COLUMNS > 1 ? 16 : 32) / (F::LOW + F::HIGH);

    typedef LaneSums<ROWS * COLUMNS, 8> Tree;

    PackedRows<COLUMNS> rows;
    bool wide;
    Packed<F> ahead[AHEAD][COLUMNS];
    float sums[ROWS * COLUMNS];

    void send(uint slot, uint chunk, uint chunks) {
        if (wide && chunk < chunks) {
            for (uint c = 0; c < COLUMNS; ++c) {
                ahead[slot][c].load(rows.at[c], chunk, chunks);
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

    void fold(uint slot, X x, uint row, uint chunk) {
        Scales scales[COLUMNS];
        for (uint c = 0; c < COLUMNS; ++c) {
            scales[c] = ahead[slot][c].scales();
        }
        for (uint r = 0; r < ROWS; ++r) {
            uint pairs[16];
            x.load(row + r, chunk, pairs);
            const float scale = x.scale(row + r, chunk);
            const int2 total = x.total(row + r, chunk);
            for (uint c = 0; c < COLUMNS; ++c) {
                const int2 dots = ahead[slot][c].dots(pairs, total);
                float sum = sums[r * COLUMNS + c];
                for (uint half_of = 0; half_of < 32 / F::GROUP; ++half_of) {
                    const int product = F::GROUP == 32 ? dots.x + dots.y : dots[half_of];
                    sum = fma(scales[c].scale[half_of] * scale, float(product), sum);
                    if (F::OFFSETS) {
                        const int of = F::GROUP == 32 ? total.x + total.y : total[half_of];
                        sum = fma(scales[c].offset[half_of] * scale, float(of), sum);
                    }
                }
                sums[r * COLUMNS + c] = sum;
            }
        }
    }

    // Folds the rows, of `chunks`, with those of x from `row` on; then, if there are others, they are in flight before the last of these are folded.
    void fold_rows(X x, uint row, uint chunks, uint lane, bool has_others, PackedRows<COLUMNS> others) {
        for (uint i = 0; i < ROWS * COLUMNS; ++i) {
            sums[i] = 0.0f;
        }
        const uint first = lane % 8;
        uint c = first;
        for (; !wide && c < chunks; c += 8) {
            for (uint column = 0; column < COLUMNS; ++column) {
                ahead[0][column].gather(rows.at[column], c, chunks);
            }
            fold(0, x, row, c);
        }
        for (; c + 8 * AHEAD < chunks; c += 8 * AHEAD) {
#pragma unroll
            for (uint i = 0; i < AHEAD; ++i) {
                fold(i, x, row, c + 8 * i);
                send(i, c + 8 * (AHEAD + i), chunks);
            }
        }
        if (has_others) {
            rows = others;
            wide = others.are_wide();
        }
#pragma unroll
        for (uint i = 0; i < AHEAD; ++i) {
            if (c + 8 * i < chunks) {
                fold(i, x, row, c + 8 * i);
            }
            if (has_others) {
                send(i, first + 8 * i, chunks);
            }
        }
    }

    // The products: number `Tree::first(lane)` for each lane, row by row.
    float total(uint lane) {
        Tree::apply(sums, lane);
        return sums[0];
    }
};
