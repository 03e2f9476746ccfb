// Shared memory: barriers and what else the header has; then, at multiples of 1024 bytes, the thread block's own tiles and a ring of items.
//
// Before: ROWS and OWN, rows and number of own tiles; BLOCK and STAGES, rows and number of items; HEADER, bytes.

constexpr int COMPUTING = ROWS / 16;  // Warps.
constexpr int COPYING = 4;
// Warps that copy take items in turn. With fewer places than warps, one that is ahead would take the end of a place's phase before last for that of the last.
static_assert(STAGES >= COPYING, "a place of the ring for each warp that copies");
constexpr int PANEL = 64;  // Elements of a row of 128 bytes: longer rows lie in panels beside each other.

struct Memory {
    u32 base;

    DEVICE u32 full(u32 item) const { return base + 8 * (item % STAGES); }
    DEVICE u32 empty(u32 item) const { return base + 8 * (STAGES + item % STAGES); }
    DEVICE u32 own_full() const { return base + 8 * (2 * STAGES); }
    DEVICE u32 own_empty() const { return base + 8 * (2 * STAGES + 1); }
    DEVICE u32 own(int which) const { return base + HEADER + which * 2 * WIDTH * ROWS; }
    DEVICE u32 stage(u32 item) const { return own(OWN) + item % STAGES * 2 * WIDTH * BLOCK; }

    // By all threads: one warp of four copies an item, all of them own tiles, and COMPUTING warps compute.
    DEVICE void prepare() const {
        if (threadIdx.x == 0) {
            for (int i = 0; i < STAGES; ++i) {
                init(full(i), 1);
                init(empty(i), COMPUTING);
            }
            init(own_full(), COPYING);
            init(own_empty(), COMPUTING);
        }
        __syncthreads();
    }
};
