// Blocks of 128 elements as integers, multiples of a unit, for the strict products of 16-bit operands. Half of a simdgroup has a block, each lane eight
// neighbours.

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

// Bits of the largest magnitude of a block: they sort as magnitudes do, infinity and NaN last.
inline uint largest_of_block(thread const float (&values)[SLOTS]) {
    uint largest = 0;
    for (uint i = 0; i < SLOTS; ++i) {
        largest = max(largest, as_type<uint>(values[i]) & 0x7fffffffu);
    }
    for (ushort mask = 8; mask > 0; mask >>= 1) {
        largest = max(largest, simd_shuffle_xor(largest, mask));
    }
    return largest;
}

// Eight integers of a left side, their upper and their lower bytes.
struct LeftPiece {
    uint high[2];
    uint low[2];
    float unit;
};

template <typename T>
inline LeftPiece left_piece(thread const float (&values)[SLOTS]) {
    const Unit<LEFT_BITS, T> multiples(largest_of_block(values));
    LeftPiece piece;
    piece.unit = multiples.unit;
    for (uint half_index = 0; half_index < 2; ++half_index) {
        thread const float* v = values + 4 * half_index;
        const uint a = multiples.raised(v[0]), b = multiples.raised(v[1]), c = multiples.raised(v[2]), d = multiples.raised(v[3]);
        piece.high[half_index] = (a >> 8 & 0xffu) | (b & 0xff00u) | (c & 0xff00u) << 8 | (d & 0xff00u) << 16;
        piece.low[half_index] = (a & 0xffu) | (b & 0xffu) << 8 | (c & 0xffu) << 16 | d << 24;
    }
    return piece;
}

// Elements k … k + 7 of a line of `n`.
template <typename Left>
inline LeftPiece load_left(Left from, uint line, uint k, uint n) {
    float values[SLOTS];
    from.load(line, k, n, 0.0f, values);
    return left_piece<typename Left::Element>(values);
}

// Eight integers of a right side, in pairs.
struct RightPiece {
    uint pairs[4];
    float unit;
};

template <typename T>
inline RightPiece right_piece(thread const float (&values)[SLOTS]) {
    const Unit<RIGHT_BITS, T> multiples(largest_of_block(values));
    RightPiece piece;
    piece.unit = multiples.unit;
    for (uint i = 0; i < 4; ++i) {
        piece.pairs[i] = (multiples.raised(values[2 * i]) & 0xffffu) | multiples.raised(values[2 * i + 1]) << 16;
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
