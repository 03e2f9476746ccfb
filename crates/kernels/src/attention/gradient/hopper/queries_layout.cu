constexpr int ROWS = 128;  // Queries of a tile.
constexpr int OWN = 2;     // Queries, and the gradients of their outputs.
constexpr int BLOCK = 128; // Keys or values that are copied at once.
constexpr int STAGES = 5;
constexpr int HEADER = 1024;
