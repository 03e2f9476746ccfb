constexpr int ROWS = 64;  // Of a tile.
constexpr int OWN = 1;
constexpr int BLOCK = 128;  // Keys or values that are copied at once.
constexpr int STAGES = 4;
constexpr int HEADER = 1024;
constexpr int RESIDENT = 2;  // Thread blocks of a multiprocessor, where their memory fits.
constexpr int TO_COPY = 72;  // Registers of the threads that copy and of those that compute.
constexpr int TO_COMPUTE = 184;
