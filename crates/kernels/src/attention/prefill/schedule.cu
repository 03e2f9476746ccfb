// Who works on what: tiles of queries, the keys they attend, and where things lie in shared memory.

constexpr int ROWS = 128;  // Queries of a tile.
constexpr int KEYS = 128;  // Keys or values that are copied at once.
constexpr int STAGES = 6;  // Buffers of the ring.
constexpr int PANEL = 64;  // Elements of a row of 128 bytes: longer rows lie in panels beside each other.
constexpr int PANEL_BYTES = 128 * ROWS;
constexpr int TILE_BYTES = WIDTH / PANEL * PANEL_BYTES;

// A tile of queries of one head.
struct Tile {
    int batch;
    int head;
    int first;
    // Keys that any of its queries attends, and those that all do.
    KeyRange some;
    KeyRange all;

    DEVICE int blocks() const { return some.start < some.end ? (some.end + KEYS - 1) / KEYS - some.start / KEYS : 0; }
    // Blocks go down from the last keys.
    DEVICE int first_key(int block) const { return ((some.end - 1) / KEYS - block) * KEYS; }
};

// Gives each thread block its tiles; rounds go forth and back so that all get about as many keys.
struct Schedule {
    const Params& p;
    const int* positions;
    const int* lengths;
    int tiles;
    int heads;

    DEVICE Schedule(const Params& p, const int* positions, const int* lengths)
        : p(p), positions(positions), lengths(lengths), tiles((int(p.score.queries) + ROWS - 1) / ROWS), heads(int(p.score.heads * p.score.batch)) {}

    DEVICE int rounds() const { return (tiles * heads + int(gridDim.x) - 1) / int(gridDim.x); }

    // Whether there is a tile in this round. To be called by whole warps.
    DEVICE bool find(int round, Tile& tile) const {
        const int turn = round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x, index = round * gridDim.x + turn;
        if (index >= tiles * heads) {
            return false;
        }
        tile.first = (tiles - 1 - index / heads) * ROWS;
        tile.batch = index % heads / int(p.score.heads);
        tile.head = index % heads % int(p.score.heads);
        KeyRange some = {0x7fffffff, 0}, all = {0, 0x7fffffff};
#pragma unroll
        for (int i = 0; i < ROWS; i += 32) {
            const int query = min(tile.first + i + int(threadIdx.x % 32), int(p.score.queries) - 1);
            const KeyRange r = attended(p.score, positions, lengths, tile.batch, query);
            if (r.start < r.end) {
                some = {min(some.start, r.start), max(some.end, r.end)};
            }
            all = {max(all.start, r.start), min(all.end, r.end)};
        }
        tile.some = {__reduce_min_sync(~0u, some.start), __reduce_max_sync(~0u, some.end)};
        tile.all = {__reduce_max_sync(~0u, all.start), __reduce_min_sync(~0u, all.end)};
        return true;
    }
};

// Shared memory: barriers; then, at multiples of 1024 bytes, the queries and the ring.
struct Memory {
    u32 base;

    DEVICE u32 full(u32 item) const { return base + 8 * (item % STAGES); }
    DEVICE u32 empty(u32 item) const { return base + 8 * (STAGES + item % STAGES); }
    DEVICE u32 queries_full() const { return base + 8 * (2 * STAGES); }
    DEVICE u32 queries_empty() const { return base + 8 * (2 * STAGES + 1); }
    DEVICE u32 queries() const { return base + 1024; }
    DEVICE u32 stage(u32 item) const { return base + 1024 + (1 + item % STAGES) * TILE_BYTES; }
};
