// Memory of a rank in which rows arrive.
constexpr u32 MOST_RANKS = 8;
constexpr u32 ROW_SLOTS = 4;
constexpr u32 SLOT_ELEMENTS = 32768;  // f32.

constexpr u32 RESULT_BYTES = 1048576;  // Of a rank.

// An element before it has arrived: a NaN that no instruction gives.
constexpr u32 MISSING = 0xffffffffu;

constexpr u64 PATIENCE = 10000000000ull;  // Nanoseconds.
