constexpr int ROWS = 128; // Keys of a tile.
constexpr int OWN = 2;    // Keys and values.
constexpr int BLOCK = 64; // Queries, or gradients of their outputs, that are copied at once.
constexpr int STAGES = 8;
constexpr int HEADER = 6 * 1024;
