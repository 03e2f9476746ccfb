// Rows are the queries of the heads that share keys, those of a query together. A tile has ROWS of them; their keys lie in blocks, from the first one on.

struct Tile {
    int batch;
    int kv_head;
    int first;
    // Keys that any of its rows attends, and those that all do.
    KeyRange some;
    KeyRange all;
    // Blocks to be worked on.
    int begin;
    int end;
};

struct Schedule {
    const Params& p;
    const SplitParams& split;
    const int* positions;
    const int* lengths;
    int rows;
    int tiles;
    int heads;

    DEVICE Schedule(const Params& p, const SplitParams& split, const int* positions, const int* lengths)
        : p(p), split(split), positions(positions), lengths(lengths), rows(int(p.score.queries) * int(split.group)), tiles((rows + ROWS - 1) / ROWS),
          heads(int(p.score.kv_heads * p.score.batch)) {}

    DEVICE bool is_split() const { return split.parts > 0; }
    DEVICE int parts() const { return max(int(split.parts), 1); }
    DEVICE int rounds() const { return (tiles * heads * parts() + int(gridDim.x) - 1) / int(gridDim.x); }

    // A row that does not exist is taken for the last one.
    DEVICE int query(int row) const { return int(u32(min(row, rows - 1)) / split.group); }
    DEVICE int head(const Tile& tile, int row) const { return tile.kv_head * int(split.group) + int(u32(min(row, rows - 1)) % split.group); }
    // Its number among all rows of the output.
    DEVICE int place(const Tile& tile, int row) const { return (tile.batch * int(p.score.heads) + head(tile, row)) * int(p.score.queries) + query(row); }

    // Whether there is a tile in this round: rounds go forth and back, so that all thread blocks get about as many keys. To be called by whole warps.
    DEVICE bool find(int round, Tile& tile) const {
        const int turn = round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
        int index = round * gridDim.x + turn;
        if (index >= tiles * heads * parts()) {
            return false;
        }
        const int part = index % parts();
        index /= parts();
        tile.first = (tiles - 1 - index / heads) * ROWS;
        tile.batch = index % heads / int(p.score.kv_heads);
        tile.kv_head = index % heads % int(p.score.kv_heads);
        KeyRange some = {0x7fffffff, 0}, all = {0, 0x7fffffff};
#pragma unroll
        for (int i = 0; i < ROWS; i += 32) {
            const KeyRange r = attended(p.score, positions, lengths, tile.batch, query(tile.first + i + threadIdx.x % 32));
            if (r.start < r.end) {
                some = {min(some.start, r.start), max(some.end, r.end)};
            }
            all = {max(all.start, r.start), min(all.end, r.end)};
        }
        tile.some = {__reduce_min_sync(~0u, some.start), __reduce_max_sync(~0u, some.end)};
        tile.all = {__reduce_max_sync(~0u, all.start), __reduce_min_sync(~0u, all.end)};
        const bool any = tile.some.start < tile.some.end;
        tile.begin = any ? tile.some.start / BLOCK : 0;
        tile.end = any ? (tile.some.end + BLOCK - 1) / BLOCK : 0;
        if (is_split()) {
            const bool has = tile.begin <= part && part < tile.end;
            tile.begin = part;
            tile.end = part + has;
        }
        return true;
    }
};
