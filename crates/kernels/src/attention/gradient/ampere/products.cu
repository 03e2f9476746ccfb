// Products of warps on tensor cores, from tiles of rows in shared memory, in CUDA C++ for compute capability 8.0 and later.
//
// Macros: KV (f16 or bf16), the type of the elements, and WIDTH (64 or 128), those of a row.

constexpr int THREADS = 128;          // Of a team, which has a tile of its own rows.
constexpr int ROWS = 64;              // Of its own tile, 16 for each warp.
constexpr int BLOCK = 4096 / WIDTH;   // Rows of the tiles that it walks over.
constexpr int PITCH = 2 * WIDTH + 16; // Bytes from row to row: spreads rows over the banks.

DEVICE int lane() { return threadIdx.x % 32; }
DEVICE int member() { return threadIdx.x % THREADS; }
DEVICE int team() { return threadIdx.x / THREADS; }
// Waits for the team, one of so many.
template <int TEAMS>
DEVICE void meet() {
    if (TEAMS == 1) {
        __syncthreads();
    } else if (team() == 0) {
        asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
    } else {
        asm volatile("bar.sync 2, %0;" ::"n"(THREADS) : "memory");
    }
}
