// Attention's scores: a simdgroup takes ROWS rows of queries that share a key head, and KEYS keys. The 256 accumulators of a strict dot product
// are eight for each lane; keys of up to 128 elements need fewer lanes, so that several are done at once.
//
// Memory: queries stay in registers (their first 256 elements), keys are read once for every ROWS rows, and each score is written once.

constant constexpr uint ROWS = 4;
constant constexpr uint KEYS = 32;
constant constexpr uint PARTIALS = 256;

// A row of queries: query `t` of head `head`.
struct QueryRow {
    uint head;
    uint t;
    bool exists;
    KeyRange attended;

    bool attends(uint key) const { return exists && attended.holds(key); }
};

template <typename T>
inline RowReader<T> vector_at(device const T* x, constant View& view, constant ScoreParams& p, uint batch, uint head, uint token) {
    return RowReader<T>(x + row_of(view, batch, head, token), 1, p.width);
}

template <typename Q, typename K, typename M, typename Y>
[[kernel]] void attention_scores(
    device const Q* q [[buffer(0)]],
    device const K* k [[buffer(1)]],
    device const M* mask [[buffer(2)]],
    device const int* positions [[buffer(3)]],
    device const int* lengths [[buffer(4)]],
    device Y* y [[buffer(5)]],
    constant Params& params [[buffer(6)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint simdgroups [[simdgroups_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    constant ScoreParams& p = params.score;
    const uint keys = uint(p.keys), queries = uint(p.queries), batch = group.z, key_head = group.y;
    const uint heads = uint(p.heads), shared = heads / uint(p.kv_heads);
    const uint tile = KEYS * simdgroups, tiles = (keys + tile - 1) / tile;
    const uint first_row = group.x / tiles * ROWS, first_key = group.x % tiles * tile + simdgroup * KEYS;
    // Lanes of a key, and the lane's number among them.
    const uint lanes = min(next_power_of_two((uint(p.width) + SLOTS - 1) / SLOTS), 32u), part = lane & (lanes - 1);

    QueryRow rows[ROWS];
    float queried[ROWS][SLOTS] = {};
    for (uint r = 0; r < ROWS; ++r) {
        const uint row = first_row + r;
        rows[r] = {key_head * shared + row % shared, row / shared, row < queries * shared, {0, 0}};
        if (rows[r].exists) {
            rows[r].attended = attended(p, positions, lengths, batch, rows[r].t);
            vector_at(q, p.q, p, batch, rows[r].head, rows[r].t).load(SLOTS * part, -0.0f, queried[r]);
        }
    }
    for (uint step = first_key; step < min(first_key + KEYS, keys); step += 32 / lanes) {
        const uint key = step + lane / lanes;
        bool wanted = false;
        for (uint r = 0; r < ROWS; ++r) {
            wanted = wanted || rows[r].attends(key);
        }
        float accumulators[ROWS][SLOTS] = {};
        for (uint first = SLOTS * part; wanted && first < p.width; first += PARTIALS) {
            float slots[SLOTS];
            vector_at(k, p.k, p, batch, key_head, key).load(first, 0.0f, slots);
            for (uint r = 0; r < ROWS; ++r) {
                float later[SLOTS] = {};
                if (first >= PARTIALS && rows[r].exists) {
                    vector_at(q, p.q, p, batch, rows[r].head, rows[r].t).load(first, -0.0f, later);
                }
                for (uint i = 0; i < SLOTS; ++i) {
                    accumulators[r][i] = fma(first < PARTIALS ? queried[r][i] : later[i], slots[i], accumulators[r][i]);
                }
            }
        }
        for (uint r = 0; r < ROWS; ++r) {
            float dot = combine_lanes<Add>(combine_slots<Add>(accumulators[r]), lanes);
            // What adding the accumulators of the other lanes comes to.
            dot = lanes < 32 ? dot + 0.0f : dot;
            if ((r & (lanes - 1)) == part && rows[r].exists && key < keys) {
                const float score = rows[r].attends(key) ? adjusted(p, dot * p.scale, mask, batch, rows[r].head, rows[r].t, key) : -INFINITY;
                y[((ulong(batch) * heads + rows[r].head) * queries + rows[r].t) * keys + key] = narrow<Y>(score);
            }
        }
    }
}
