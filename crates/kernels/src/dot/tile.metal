// A simdgroup's tile of strict products of 16-bit operands, as DotTile. Each half has a block of every line: 128 of the 256 neighbours of a visit. Sums of
// integers are exact in any order; the halves' values are added in the order of the blocks.

// Sums of N high and N low parts over each half of a simdgroup. Lanes keep the high or the low parts, as bit 8 of their number says, of HELD products from
// `first` on.
template <uint N>
struct HalfSums {
    static constexpr constant uint HELD = N > 8 ? N / 8 : 1;
    static constexpr constant uint SHARING = N > 8 ? 1 : 8 / N;

    static uint first(uint lane) { return lane % 8 / SHARING * HELD; }
    // The first lane that keeps a product.
    static uint lane_of(uint product) { return product / HELD * SHARING; }

    static void apply(thread int (&values)[2 * N], uint lane) {
        uint n = 2 * N;
        for (uint mask = 8; mask > 0; mask /= 2) {
            if (n == 1) {
                values[0] += simd_shuffle_xor(values[0], ushort(mask));
                continue;
            }
            const bool upper = (lane & mask) != 0;
            n /= 2;
            for (uint i = 0; i < n; ++i) {
                const int given = upper ? values[i] : values[n + i];
                const int kept = upper ? values[n + i] : values[i];
                values[i] = kept + simd_shuffle_xor(given, ushort(mask));
            }
        }
    }
};

template <typename Left, typename Right, uint ROWS, uint COLUMNS, uint AHEAD>
struct FixedTile {
    typedef typename Right::Element B;

    static constexpr constant uint STRIDE = 32 * SLOTS;
    static constexpr constant uint PRODUCTS = ROWS * COLUMNS;

    typedef LaneSums<PRODUCTS, 32> Tree;
    typedef HalfSums<PRODUCTS> Halves;

    Words<B> ahead[AHEAD][COLUMNS];
    device const B* origin[COLUMNS];
    bool wide;
    float sums[Halves::HELD];

    // Sends for visit `visit` of those ahead: the lane's elements of the 256 from element `from` on.
    void send(uint visit, uint from, uint n, uint lane) {
        if (wide && from + lane * SLOTS + SLOTS <= n) {
            for (uint c = 0; c < COLUMNS; ++c) {
                ahead[visit][c] = load_words(origin[c] + from);
            }
        }
    }

    void begin(Right b, uint lane) {
        wide = b.wide;
        for (uint c = 0; c < COLUMNS; ++c) {
            origin[c] = b.at(c, lane * SLOTS);
        }
    }

    // Sends for the first elements of b: what is done until `finish` costs no time.
    void start(Right b, uint n, uint lane) {
        begin(b, lane);
#pragma unroll
        for (uint i = 0; i < AHEAD; ++i) {
            send(i, i * STRIDE, n, lane);
        }
    }

    RightPiece right(uint visit, uint c, uint from, uint n, uint lane) const {
        const uint k = from + lane * SLOTS;
        float values[SLOTS];
        if (wide && k + SLOTS <= n) {
            widen(ahead[visit][c], values);
        } else {
            for (uint i = 0; i < SLOTS; ++i) {
                values[i] = k + i < n ? widen(origin[c][from + i]) : 0.0f;
            }
        }
        return right_piece<B>(values);
    }

    // Adds the values of two blocks, whose elements came for visit `visit`.
    void fold_visit(uint visit, Left a, uint from, uint n, uint lane) {
        RightPiece w[COLUMNS];
        for (uint c = 0; c < COLUMNS; ++c) {
            w[c] = right(visit, c, from, n, lane);
        }
        int parts[2 * PRODUCTS] = {};
        float units[PRODUCTS];
        for (uint r = 0; r < ROWS; ++r) {
            const LeftPiece x = load_left(a, r, from + lane * SLOTS, n);
            for (uint c = 0; c < COLUMNS; ++c) {
                const uint product = r * COLUMNS + c;
                add_products(parts[product], parts[PRODUCTS + product], x.high, x.low, w[c].pairs);
                units[product] = x.unit * w[c].unit;
            }
        }
        Halves::apply(parts, lane);
        for (uint i = 0; i < Halves::HELD; ++i) {
            const int other = simd_shuffle_xor(parts[i], 8);
            const bool is_low = (lane & 8) != 0;
            float unit = units[0];
            for (uint product = 1; product < PRODUCTS; ++product) {
                unit = Halves::first(lane) + i == product ? units[product] : unit;
            }
            const float value = rounded_once(is_low ? other : parts[i], is_low ? parts[i] : other) * unit;
            const float beside = simd_shuffle_xor(value, 16);
            const bool is_first = lane < 16;
            sums[i] = sums[i] + (is_first ? value : beside);
            sums[i] = sums[i] + (is_first ? beside : value);
        }
    }

    void clear() {
        for (uint i = 0; i < Halves::HELD; ++i) {
            sums[i] = 0.0f;
        }
    }

    // Folds the lines, of `n` elements.
    void fold_lines(Left a, uint n, uint lane) {
        clear();
        for (uint first = 0; first < n; first += AHEAD * STRIDE) {
#pragma unroll
            for (uint i = 0; i < AHEAD; ++i) {
                const uint from = first + i * STRIDE;
                if (from < n) {
                    fold_visit(i, a, from, n, lane);
                    send(i, from + AHEAD * STRIDE, n, lane);
                }
            }
        }
    }

    // The same, and starts another tile, with its first elements in flight before the last of these are folded.
    void fold_lines(Left a, uint n, uint lane, Right following) {
        if (!(wide && following.wide)) {
            fold_lines(a, n, lane);
            return start(following, n, lane);
        }
        clear();
        for (uint first = 0; first < n; first += AHEAD * STRIDE) {
            const bool last = first + AHEAD * STRIDE >= n;
#pragma unroll
            for (uint i = 0; i < AHEAD; ++i) {
                const uint from = first + i * STRIDE;
                if (from >= n) {
                    continue;
                }
                fold_visit(i, a, from, n, lane);
                if (!last && from + AHEAD * STRIDE < n) {
                    send(i, from + AHEAD * STRIDE, n, lane);
                } else if (i * STRIDE + lane * SLOTS + SLOTS <= n) {
                    for (uint c = 0; c < COLUMNS; ++c) {
                        ahead[i][c] = load_words(following.at(c, lane * SLOTS) + i * STRIDE);
                    }
                }
            }
        }
        begin(following, lane);
    }

    // The products of the lines folded: number `Tree::first(lane)` for each lane, row by row.
    float total(uint lane) const {
        const uint product = Tree::first(lane);
        float total = 0.0f;
        for (uint i = 0; i < Halves::HELD; ++i) {
            const float sum = simd_shuffle(sums[i], ushort(Halves::lane_of(product)));
            total = product % Halves::HELD == i ? sum : total;
        }
        return total;
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

// The tile of a product of A and B: of integers where that is asked for and one of them has 16 bits.
template <uint FIXED, typename A, typename B>
struct IsFixed {
    static constexpr constant bool value = FIXED != 0 && (sizeof(A) == 2 || sizeof(B) == 2);
};

template <bool FIXED, typename Left, typename Right, uint ROWS, uint COLUMNS, uint AHEAD = 16 / (sizeof(typename Right::Element) * COLUMNS)>
struct Dots {
    typedef DotTile<Left, Right, ROWS, COLUMNS, AHEAD> Tile;
};

template <typename Left, typename Right, uint ROWS, uint COLUMNS, uint AHEAD>
struct Dots<true, Left, Right, ROWS, COLUMNS, AHEAD> {
    typedef FixedTile<Left, Right, ROWS, COLUMNS, AHEAD> Tile;
};
