// What a block of a side's rows becomes: a record of the upper bytes of its integers, the lower bytes, and a unit for each row. Rows of bytes are 128 long
// and swizzled, as wgmma reads them: of row r, piece c of 16 bytes has the place of piece c ^ r % 8.

constexpr u32 BLOCK = 128;

template <int ROWS>
struct Record {
    static constexpr u32 PLANE = BLOCK * ROWS;
    static constexpr u32 UNITS = 2 * PLANE;
    static constexpr u32 BYTES = UNITS + 4 * ROWS;

    static DEVICE u32 place(u32 row, u32 piece) { return row * BLOCK + (piece ^ row % 8) * 16; }
};

// A block's unit and its inverse follow from the exponent field of its largest magnitude, 255 if it is not finite. WIDTH: bits of an integer.
template <int WIDTH>
struct Unit {
    u32 field;

    DEVICE explicit Unit(u32 greatest) : field(max(greatest >> 23, 17u)) {}
    DEVICE float value() const { return __uint_as_float(field == 255 ? 0x7fc00000u : (field - (WIDTH - 2)) << 23); }
    DEVICE float inverse() const { return __uint_as_float((252 + WIDTH - min(field, 254u)) << 23); }
};

constexpr float ROUND = 12582912.0f;  // 1.5 · 2^23: of a sum with it the low bits are an integer.

// The integers of four numbers, as bytes: of 16 bits each, if the numbers were multiplied with the inverse of their unit and have had ROUND added.
DEVICE void split(const float (&sums)[4], u32& upper, u32& lower) {
    const u32 first = __byte_perm(__float_as_uint(sums[0]), __float_as_uint(sums[1]), 0x5140);
    const u32 second = __byte_perm(__float_as_uint(sums[2]), __float_as_uint(sums[3]), 0x5140);
    lower = __byte_perm(first, second, 0x5410);
    upper = __byte_perm(first, second, 0x7632);
}
