// Attention of many queries over pages: as attention.metal.

template <typename Q, typename KV, uint ROWS, uint LANES, uint COLUMNS, uint CHUNKS>
[[kernel, max_total_threads_per_threadgroup(512)]] void attention_paged(
    device const Q* q [[buffer(0)]],
    device const KV* k [[buffer(1)]],
    device const KV* v [[buffer(2)]],
    device const int* table [[buffer(3)]],
    device const int* positions [[buffer(4)]],
    device Q* y [[buffer(5)]],
    constant PagedParams& params [[buffer(6)]],
    device atomic_uint* error_flag [[buffer(7)]],
    threadgroup float* shared [[threadgroup(0)]],
    uint index [[threadgroup_position_in_grid]],
    uint count [[threadgroups_per_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    typedef Tile<Q, KV, bool, ROWS, LANES, COLUMNS, CHUNKS, Paged> T;
    constant Params& p = params.attention;
    const uint turn = count - 1 - index, heads = uint(p.score.kv_heads * p.score.batch);
    T tile(p, q, k, v, nullptr, shared, lane, simdgroup, turn / heads, turn % heads);
    tile.newest = {table + ulong(tile.batch) * params.entries, uint(params.entries), uint(params.page), uint(params.pages), error_flag, 0, 0, false};
    await_launches();
    tile.begin(positions, nullptr);
    tile.share_queries();
    walk<COLUMNS, CHUNKS>(tile, y);
}
