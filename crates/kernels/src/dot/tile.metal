// A simdgroup's tile of strict products of 16-bit operands, as DotTile. Lanes in turn have blocks, as many lanes a block of every line as it has EIGHTS for
// each; their eights are neighbours first. Sums of integers are exact in any order; the blocks' values are added in the order of the blocks.

// Up to eight elements, and zeros.
template <typename T>
inline Words<T> gather_words(device const T* from, uint count) {
    Words<T> words = {};
    for (uint i = 0; i < SLOTS; ++i) {
        words.at[0][i / 2] |= i < count ? uint(as_type<ushort>(from[i])) << (i % 2 * 16) : 0;
    }
    return words;
}

inline Words<float> gather_words(device const float* from, uint count) {
    Words<float> words = {};
    for (uint i = 0; i < SLOTS; ++i) {
        words.at[i / 4][i % 4] = i < count ? as_type<uint>(from[i]) : 0;
    }
    return words;
}

// Sums of N high and N low parts over so many neighbouring lanes. Half of them keep the high parts, the others the low ones, of HELD products from `first` on.
template <uint N, uint LANES>
struct BlockSums {
    static constexpr constant uint HALF = LANES / 2;
    static constexpr constant uint HELD = N > HALF ? N / HALF : 1;
    static constexpr constant uint SHARING = N > HALF ? 1 : HALF / N;

    static uint first(uint lane) { return lane % HALF / SHARING * HELD; }
    // The first lane that keeps a product.
    static uint lane_of(uint product) { return product / HELD * SHARING; }

    static void apply(thread int (&values)[2 * N], uint lane) {
        uint n = 2 * N;
        for (uint mask = HALF; mask > 0; mask /= 2) {
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

template <typename Left, typename Right, uint ROWS, uint COLUMNS, uint EIGHTS, uint AHEAD>
struct FixedTile {
    typedef typename Right::Element B;

    static constexpr constant uint LANES = FIXED_BLOCK / (EIGHTS * SLOTS);
    static constexpr constant uint STRIDE = 32 * EIGHTS * SLOTS;
    static constexpr constant uint VISITS = AHEAD > EIGHTS ? AHEAD / EIGHTS : 1;
    static constexpr constant uint PRODUCTS = ROWS * COLUMNS;

    typedef LaneSums<PRODUCTS, 32> Tree;
    typedef BlockSums<PRODUCTS, LANES> Parts;

    // A lane's first elements of the lines, and whether all of them are sent for, in words.
    struct Start {
        device const B* origin[COLUMNS];
        bool wide;
    };

    Words<B> ahead[VISITS][COLUMNS][EIGHTS];
    Start lines;
    float sums[Parts::HELD];

    // Where a lane's eights are, from the first element of a visit on.
    static uint place(uint eight, uint lane) { return lane / LANES * FIXED_BLOCK + (eight * LANES + lane % LANES) * SLOTS; }

    // Sends for a visit's elements, which begin at element `from`, and zeros.
    void send(uint visit, uint from, uint n, uint lane) {
        if (from + STRIDE <= n) {
            for (uint i = 0; i < COLUMNS * EIGHTS; ++i) {
                ahead[visit][i / EIGHTS][i % EIGHTS] = load_words(lines.origin[i / EIGHTS] + from + i % EIGHTS * LANES * SLOTS);
            }
            return;
        }
        for (uint i = 0; i < COLUMNS * EIGHTS; ++i) {
            const bool is_there = from + place(i % EIGHTS, lane) < n;
            ahead[visit][i / EIGHTS][i % EIGHTS] = is_there ? load_words(lines.origin[i / EIGHTS] + from + i % EIGHTS * LANES * SLOTS) : Words<B>{};
        }
    }

    static Start start_of(Right b, uint n, uint lane) {
        Start start;
        start.wide = b.wide && n % SLOTS == 0;
        for (uint c = 0; c < COLUMNS; ++c) {
            start.origin[c] = b.at(c, place(0, lane));
        }
        return start;
    }

    void start(Start from, uint n, uint lane) {
        lines = from;
#pragma unroll
        for (uint v = 0; v < VISITS && lines.wide; ++v) {
            send(v, v * STRIDE, n, lane);
        }
    }

    // Sends for the first elements of b: what is done until `finish` costs no time.
    void start(Right b, uint n, uint lane) { start(start_of(b, n, lane), n, lane); }

    // What came for a visit, as integers.
    struct Cut {
        RightPiece<EIGHTS> columns[COLUMNS];

        Cut(thread const Words<B> (&words)[COLUMNS][EIGHTS]) {
            for (uint c = 0; c < COLUMNS; ++c) {
                float values[EIGHTS][SLOTS];
                for (uint i = 0; i < EIGHTS; ++i) {
                    widen(words[c][i], values[i]);
                }
                columns[c] = right_piece<B>(values, largest_of(words[c]));
            }
        }
    };

    // Adds the values of a visit's blocks.
    void fold_visit(Cut w, Left a, uint from, uint n, uint lane) {
        int parts[2 * PRODUCTS] = {};
        float units[PRODUCTS];
        for (uint r = 0; r < ROWS; ++r) {
            const LeftPiece<EIGHTS> x = load_left(a, r, from, n, lane);
            for (uint c = 0; c < COLUMNS; ++c) {
                const uint product = r * COLUMNS + c;
                for (uint i = 0; i < EIGHTS; ++i) {
                    add_products(parts[product], parts[PRODUCTS + product], x.high[i], x.low[i], w.columns[c].pairs[i]);
                }
                units[product] = x.unit * w.columns[c].unit;
            }
        }
        Parts::apply(parts, lane);
        for (uint i = 0; i < Parts::HELD; ++i) {
            const int other = simd_shuffle_xor(parts[i], ushort(Parts::HALF));
            const bool is_low = (lane & Parts::HALF) != 0;
            float unit = units[0];
            for (uint product = 1; product < PRODUCTS; ++product) {
                unit = Parts::first(lane) + i == product ? units[product] : unit;
            }
            const float value = rounded_once(is_low ? other : parts[i], is_low ? parts[i] : other) * unit;
            for (uint block = 0; block < 32 / LANES; ++block) {
                sums[i] = sums[i] + simd_shuffle(value, ushort(block * LANES + lane % LANES));
            }
        }
    }

    void clear() {
        for (uint i = 0; i < Parts::HELD; ++i) {
            sums[i] = 0.0f;
        }
    }

    // Folds lines whose elements are not sent for: they are not wide.
    void fold_narrow(Left a, uint n, uint lane) {
        for (uint from = 0; from < n; from += STRIDE) {
            Words<B> words[COLUMNS][EIGHTS];
            for (uint i = 0; i < COLUMNS * EIGHTS; ++i) {
                const uint k = from + place(i % EIGHTS, lane);
                words[i / EIGHTS][i % EIGHTS] = gather_words(lines.origin[i / EIGHTS] + from + i % EIGHTS * LANES * SLOTS, k < n ? n - k : 0);
            }
            fold_visit(Cut(words), a, from, n, lane);
        }
    }

    // Folds the lines, of `n` elements. If there are `more`, starts those, with their first elements in flight before the last of these are folded.
    void fold(Left a, uint n, uint lane, bool more, Start following) {
        clear();
        if (!lines.wide) {
            fold_narrow(a, n, lane);
            if (more) {
                start(following, n, lane);
            }
            return;
        }
        for (uint first = 0; first < n; first += VISITS * STRIDE) {
            const bool last = first + VISITS * STRIDE >= n;
            if (last && more) {
                lines = following;
            }
#pragma unroll
            for (uint v = 0; v < VISITS; ++v) {
                const uint from = first + v * STRIDE;
                const Cut w(ahead[v]);
                if (!last || (more && lines.wide)) {
                    send(v, last ? v * STRIDE : from + VISITS * STRIDE, n, lane);
                }
                if (from < n) {
                    fold_visit(w, a, from, n, lane);
                }
            }
        }
    }

    void fold_lines(Left a, uint n, uint lane, bool more, Right following) { fold(a, n, lane, more, start_of(following, n, lane)); }

    // The products of the lines folded: number `Tree::first(lane)` for each lane, row by row.
    float total(uint lane) const {
        const uint product = Tree::first(lane);
        float total = 0.0f;
        for (uint i = 0; i < Parts::HELD; ++i) {
            const float sum = simd_shuffle(sums[i], ushort(Parts::lane_of(product)));
            total = product % Parts::HELD == i ? sum : total;
        }
        return total;
    }

    float finish(Left a, uint n, uint lane) {
        fold(a, n, lane, false, lines);
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
    typedef FixedTile<Left, Right, ROWS, COLUMNS, 1, AHEAD> Tile;
};
