// What attention_gradient_queries finds for attention_gradient_keys, which takes 64 queries at a time.

constexpr int TILE = 64;

// What is known of a tile's queries.
struct __align__(16) Queries {
    // Where their weights begin, in powers of two: infinity for those that attend no key, or do not exist.
    float start[TILE];
    // The products of outputs with their gradients.
    float product[TILE];
    // The keys that each attends, and those that all do.
    KeyRange attended[TILE];
    KeyRange all;
};

static_assert(sizeof(Queries) == 16 * TILE + 16, "as the host makes room for it");

DEVICE i64 tile_of(const ScoreParams& s, int batch, int head, int query) {
    return (i64(batch) * i64(s.heads) + head) * ((int(s.queries) + TILE - 1) / TILE) + query / TILE;
}

// Whether the unit that copies takes the rows: they begin at multiples of sixteen bytes, and none after each other at the same or backwards.
DEVICE bool are_mapped(const Q* rows, const View& v, const ScoreParams& s) {
    const bool ascend = v.token > 0 && (s.heads == 1 || v.head > 0) && (s.batch == 1 || v.batch > 0);
    return ascend && ((u64(rows) | 2 * (v.origin | v.token | v.head | v.batch)) & 15) == 0;
}

DEVICE Mapped<4> mapped(const Q* rows, const View& v, const ScoreParams& s) {
    const i64 head = s.heads == 1 ? v.token : v.head, batch = s.batch == 1 ? v.token : v.batch;
    return {rows + v.origin, {WIDTH, u32(s.queries), u32(s.heads), u32(s.batch)}, {u64(2 * v.token), u64(2 * head), u64(2 * batch)}, TILE};
}

// By a warp, by way of shared memory: maps of queries and of the gradients of their outputs.
DEVICE void make_maps(unsigned char* maps, u32 shared, const Q* q, const Q* dy, const Params& p) {
    if (threadIdx.x % 32 == 0) {
        make_map(shared, mapped(q, p.score.q, p.score));
        make_map(shared + MAP, mapped(dy, p.y, p.score));
    }
    __syncwarp();
    publish_map(maps, shared);
    publish_map(maps + MAP, shared + MAP);
}
