constexpr int BLOCK = 128;  // Keys or values that are copied at once.
constexpr int PANEL = 64;   // Elements of a row of 128 bytes: longer rows lie in panels beside each other.
constexpr int THREADS = 128;
constexpr int RESIDENT = 3;  // Thread blocks of a multiprocessor, where their memory fits.
