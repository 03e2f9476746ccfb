// Rows of x as integers of 16 bits, 32 neighbours of which, a chunk, are multiples of one scale: a record has a chunk of 64 rows. An integer is two f16, 256
// times its upper byte and the lower one: planes, of which a piece has eight elements of all rows. Of 16 elements, pieces have 0 1 4 5 8 9 12 13 and 2 3 6 7
// 10 11 14 15, so that what a lane multiplies them with are neighbours. Beside them, of two rows each, are their scales and sums, and the sums of each half.

constexpr u32 ROWS = 64, CHUNK = 32;

struct Record {
    static constexpr u32 PIECE = 16 * ROWS, PLANE = 4 * PIECE, NUMBERS = 2 * PLANE, HALVES = NUMBERS + 8 * ROWS, BYTES = HALVES + 8 * ROWS;
};
