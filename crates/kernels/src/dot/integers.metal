// Blocks of 128 elements as integers, multiples of a unit, for the strict products of 16-bit operands. Neighbouring lanes have a
// block, each one or more eights of neighbours.

constant constexpr uint FIXED_BLOCK = 128;

// Bits of the integers of a left side, and of a right one.
constant constexpr uint LEFT_BITS = 16;
constant constexpr uint RIGHT_BITS = 15;

// A power of two, and its inverse. Of elements of 16 bits no integer leaves the range.
template <uint BITS, typename T>
struct Unit {
    float unit;
    float inverse;

    // For a block whose largest magnitude has these bits: NaN if one is not finite.
    Unit(uint largest) {
        const uint field = max(largest >> 23, 17u);
        unit = as_type<float>(field == 255 ? 0x7fc00000u : (field - (BITS - 2)) << 23);
        inverse = as_type<float>((252 + BITS - field) << 23);
    }

    // The nearest integer, ties to even, in the lower half: of 12582912 the last bit is one.
    uint raised(float value) const {
        const float limit = float((1 << (BITS - 1)) - 1), sum = fma(value, inverse, 12582912.0f);
        return as_type<uint>(sizeof(T) == 2 ? sum : clamp(sum, 12582912.0f - limit, 12582912.0f + limit));
    }
};

// Bits of the largest magnitude: they sort as magnitudes do, infinity and NaN last.
template <uint EIGHTS>
inline uint largest_of(thread const float (&values)[EIGHTS][SLOTS]) {
    uint largest = 0;
    for (uint i = 0; i < EIGHTS * SLOTS; ++i) {
        largest = max(largest, as_type<uint>(values[i / SLOTS][i % SLOTS]) & 0x7fffffffu);
    }
    return largest;
}

// The larger of a pair of 16-bit magnitudes, in the bits of f32.
template <typename T>
inline uint larger_of(uint pair) {
    return as_type<uint>(widen(as_type<T>(ushort(max(pair & 0xffffu, pair >> 16)))));
}

template <>
inline uint larger_of<float>(uint magnitude) {
    return magnitude;
}

// The same of words, whose pairs are compared at once.
template <typename T, uint EIGHTS>
inline uint largest_of(thread const Words<T> (&words)[EIGHTS]) {
    constexpr uint COUNT = sizeof(T);
    uint largest = 0;
    for (uint i = 0; i < EIGHTS * 2 * COUNT; ++i) {
        const uint word = words[i / (2 * COUNT)].at[i / 4 % (COUNT / 2)][i % 4];
        largest = COUNT == 4 ? max(largest, word & 0x7fffffffu) : larger_pair<T>(largest, word);
    }
    return larger_of<T>(largest);
}

// The largest of a block, of which neighbouring lanes have so many eights each.
template <uint EIGHTS>
inline uint largest_of_block(uint largest) {
    for (ushort mask = FIXED_BLOCK / (2 * EIGHTS * SLOTS); mask > 0; mask >>= 1) {
        largest = max(largest, simd_shuffle_xor(largest, mask));
    }
    return largest;
}

// Of a block's integers on the left side those that a lane has, in eights: their upper and their lower bytes.
template <uint EIGHTS>
struct LeftPiece {
    uint high[EIGHTS][2];
    uint low[EIGHTS][2];
    float unit;
};

template <typename T, uint EIGHTS>
inline LeftPiece<EIGHTS> left_piece(thread const float (&values)[EIGHTS][SLOTS]) {
    const Unit<LEFT_BITS, T> multiples(largest_of_block<EIGHTS>(largest_of(values)));
    LeftPiece<EIGHTS> piece;
    piece.unit = multiples.unit;
    for (uint i = 0; i < EIGHTS; ++i) {
        for (uint half_index = 0; half_index < 2; ++half_index) {
            thread const float* v = values[i] + 4 * half_index;
            const uint a = multiples.raised(v[0]), b = multiples.raised(v[1]), c = multiples.raised(v[2]), d = multiples.raised(v[3]);
            piece.high[i][half_index] = (a >> 8 & 0xffu) | (b & 0xff00u) | (c & 0xff00u) << 8 | (d & 0xff00u) << 16;
            piece.low[i][half_index] = (a & 0xffu) | (b & 0xffu) << 8 | (c & 0xffu) << 16 | d << 24;
        }
    }
    return piece;
}

// A sixteenth of a block.
template <typename T>
inline LeftPiece<1> left_eight(thread const float (&values)[SLOTS]) {
    float eight[1][SLOTS];
    for (uint i = 0; i < SLOTS; ++i) {
        eight[0][i] = values[i];
    }
    return left_piece<T>(eight);
}

// Of the blocks from element `from` on of a line of `n`.
template <typename Left>
inline LeftPiece<1> load_left(Left left, uint line, uint from, uint n, uint lane) {
    float values[1][SLOTS];
    left.load(line, from + lane * SLOTS, n, 0.0f, values[0]);
    return left_piece<typename Left::Element>(values);
}

// The same of a right side, in pairs.
template <uint EIGHTS>
struct RightPiece {
    uint pairs[EIGHTS][4];
    float unit;
};

template <typename T, uint EIGHTS>
inline RightPiece<EIGHTS> right_piece(thread const float (&values)[EIGHTS][SLOTS], uint largest) {
    const Unit<RIGHT_BITS, T> multiples(largest_of_block<EIGHTS>(largest));
    RightPiece<EIGHTS> piece;
    piece.unit = multiples.unit;
    for (uint i = 0; i < EIGHTS; ++i) {
        for (uint pair = 0; pair < 4; ++pair) {
            piece.pairs[i][pair] = (multiples.raised(values[i][2 * pair]) & 0xffffu) | multiples.raised(values[i][2 * pair + 1]) << 16;
        }
    }
    return piece;
}

// Adds eight products of integers to the sums of the upper and of the lower bytes.
inline void add_products(thread int& high, thread int& low, thread const uint (&highs)[2], thread const uint (&lows)[2], thread const uint (&pairs)[4]) {
    high = dot_four(pairs[2], pairs[3], highs[1], dot_four(pairs[0], pairs[1], highs[0], high));
    low = dot_four_unsigned(pairs[2], pairs[3], lows[1], dot_four_unsigned(pairs[0], pairs[1], lows[0], low));
}

// 256 high + low, rounded once: both parts of it are exact.
inline float rounded_once(int high, int low) {
    return fma(float((high >> 8) + (low >> 16)), 65536.0f, float((high & 0xff) * 256 + (low & 0xffff)));
}
