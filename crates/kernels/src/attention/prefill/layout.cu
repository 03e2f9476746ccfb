constexpr int ROWS = 128;  // Queries of a tile.
constexpr int OWN = 1;
constexpr int BLOCK = 128;  // Keys or values that are copied at once.
constexpr int STAGES = 6;
constexpr int HEADER = 1024;
constexpr int RESIDENT = 1;  // Thread blocks of a multiprocessor.
