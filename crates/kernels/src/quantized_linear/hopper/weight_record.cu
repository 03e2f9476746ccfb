// Rows of weights as records: a record has a chunk of 64 rows, and of each row its planes, and its scale and its offset, if there are some, of each part.
//
// Macro: FORMAT.

typedef FORMAT F;

// Parts of a chunk that share a scale.
constexpr u32 PARTS = CHUNK / F::GROUP;

struct WeightRecord {
    static constexpr u32 ROWS = 64, HIGH = ROWS * 4 * F::LOW, SCALES = HIGH + ROWS * 4 * F::HIGH, NUMBER = F::OFFSETS ? 8 : 4;
    static constexpr u32 BYTES = SCALES + PARTS * ROWS * NUMBER;
};
