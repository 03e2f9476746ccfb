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

DEVICE Rows queries_of(const Q* q, const ScoreParams& s) { return {q, s.q, s.queries, s.heads, s.batch}; }
DEVICE Rows outputs_of(const Q* y, const Params& p) { return {y, p.y, p.score.queries, p.score.heads, p.score.batch}; }
