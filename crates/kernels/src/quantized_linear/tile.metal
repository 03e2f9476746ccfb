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

// A tile of dot products with packed rows by a simdgroup, LANES lanes to each group of COLUMNS rows of weights: lane l has the chunks c = l (mod LANES), in
// ascending order. Of more than eight lanes, which take rows of whole multiples of LANES chunks, the first eight have the sums.
//
// A step's kernels take turns in the instruction cache, so the loops are short.
template <typename F, typename X, uint ROWS, uint COLUMNS, uint LANES>
struct BlockTile {
    // Chunks of each row that a lane has in flight: 128 bytes of fields in all.
    static constexpr constant uint AHEAD = 32 / COLUMNS / (F::LOW + F::HIGH);

    // Chunks of a row that are in flight.
    static constexpr constant uint ROUND = LANES * AHEAD, PART = LANES > 8 && AHEAD % 2 == 0 ? ROUND / 2 : ROUND;
    // What a chunk adds to a sum: a product for each scale and each offset.
    static constexpr constant uint EACH = F::OFFSETS ? 2 : 1, PRODUCTS = 32 / F::GROUP * EACH;

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
            send(i, lane % LANES + LANES * i, chunks);
        }
    }

    // Has the L2 cache fetch `most` bytes of the row's fields behind those in flight, or a quarter of that, if there are so many. On an H200 more of them
    // delay the row of x, and formats whose chunks take longer gain nothing.
    void fetch_behind(uint most, uint chunks, uint lane) const {
        const uint first = 4 * F::LOW * ROUND, end = 4 * F::LOW * chunks, bytes = first + most <= end ? most : most / 4;
        if (COLUMNS == 1 && F::HIGH == 0 && !F::OFFSETS && !F::Fields::IS_TABLE && wide && lane % LANES == 0 && first + bytes <= end) {
            fetch_ahead(rows.at[0] + first, bytes);
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
                float factors[PRODUCTS], numbers[PRODUCTS];
                for (uint part = 0; part < 32 / F::GROUP; ++part) {
                    factors[EACH * part] = scales[c].scale[part] * scale;
                    numbers[EACH * part] = float(F::GROUP == 32 ? dots.x + dots.y : dots[part]);
                    if (F::OFFSETS) {
                        factors[EACH * part + EACH - 1] = scales[c].offset[part] * scale;
                        numbers[EACH * part + EACH - 1] = float(F::GROUP == 32 ? total.x + total.y : total[part]);
                    }
                }
                float sum = sums[r * COLUMNS + c];
                for (uint i = 0; i < PRODUCTS; ++i) {
                    sum = fma(factors[i], numbers[i], sum);
                }
                for (ushort from = 8; from < LANES; from += 8) {
                    for (uint i = 0; i < PRODUCTS; ++i) {
                        sum = fma(simd_shuffle_xor(factors[i], from), simd_shuffle_xor(numbers[i], from), sum);
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
        const uint l = lane % LANES, block = l / 8;
        // The first lane's chunk.
        uint c = 0;
#pragma unroll 1
        for (; !wide && c + l < chunks; c += LANES) {
            for (uint column = 0; column < COLUMNS; ++column) {
                ahead[0][column].template load<Anywhere>(PackedPlace<F>(rows.at[column], c + l, chunks), 0);
            }
            fold(0, x, row, c / 8 + block, l % 8);
        }
        bool is_last = false;
        if (wide && chunks > 0 && chunks % PART == 0) {
#pragma unroll 1
            for (; !is_last; c += ROUND) {
                is_last = c + ROUND >= chunks;
                if (is_last && has_others) {
                    rows = others;
                    wide = others.are_wide();
                }
                const uint next = is_last ? 0 : c + ROUND, end = !is_last || (has_others && wide) ? chunks : 0;
                PackedPlace<F> places[COLUMNS];
                for (uint column = 0; column < COLUMNS; ++column) {
                    places[column] = PackedPlace<F>(rows.at[column], next + l, chunks);
                }
                // Two planes leave no registers for addresses that move along: on an H200 Q6_K is slower with them.
                const bool moves = F::HIGH == 0;
                const X integers = moves ? x.from(c / 8 + block, l % 8) : x;
                const uint first = moves ? 0 : c / 8 + block, within = moves ? 0 : l % 8;
#pragma unroll
                for (uint part = 0; part < ROUND; part += PART) {
                    const bool sends = next + part < end;
                    if (part == 0 || c + part < chunks) {
#pragma unroll
                        for (uint i = part / LANES; i < (part + PART) / LANES; ++i) {
                            fold(i, integers, row, first + LANES / 8 * i, within);
                            for (uint column = 0; column < COLUMNS && LANES == 8 && sends; ++column) {
                                ahead[i][column].template load<Aligned>(places[column], i);
                            }
                        }
                    }
                    // On an H200 faster together than one by one, other than those for eight lanes.
                    if (LANES > 8 && sends) {
#pragma unroll
                        for (uint i = part / LANES; i < (part + PART) / LANES; ++i) {
                            for (uint column = 0; column < COLUMNS; ++column) {
                                ahead[i][column].template load<Aligned>(places[column], LANES / 8 * i);
                            }
                        }
                    }
                }
            }
            return;
        }
#pragma unroll 1
        while (!is_last) {
            is_last = c + ROUND >= chunks;
            if (is_last && has_others) {
                rows = others;
                wide = others.are_wide();
            }
#pragma unroll
            for (uint i = 0; i < AHEAD; ++i) {
                if (c + LANES * i + l < chunks) {
                    fold(i, x, row, c / 8 + LANES / 8 * i + block, l % 8);
                }
                if (!is_last || has_others) {
                    send(i, (is_last ? 0 : c + ROUND) + LANES * i + l, chunks);
                }
            }
            c += ROUND;
        }
    }

    // The products: number `Tree::first(lane)` for each lane, row by row.
    float total(uint lane) {
        Tree::apply(sums, lane);
        return sums[0];
    }
};
