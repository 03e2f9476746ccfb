// Attention of many queries: a threadgroup for each tile of rows walks over its blocks of keys and combines them as it goes. Keys and values are read once
// for each tile, queries once a block, and nothing else leaves the GPU's cores.

template <typename Q, typename KV, typename M, uint ROWS, uint LANES, uint COLUMNS, uint CHUNKS>
[[kernel, max_total_threads_per_threadgroup(512)]] void attention(
    device const Q* q [[buffer(0)]],
    device const KV* k [[buffer(1)]],
    device const KV* v [[buffer(2)]],
    device const M* mask [[buffer(3)]],
    device const int* positions [[buffer(4)]],
    device const int* lengths [[buffer(5)]],
    device Q* y [[buffer(6)]],
    constant Params& p [[buffer(7)]],
    threadgroup float* shared [[threadgroup(0)]],
    uint index [[threadgroup_position_in_grid]],
    uint count [[threadgroups_per_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    typedef Tile<Q, KV, M, ROWS, LANES, COLUMNS, CHUNKS> T;
    // The last queries may attend most keys: they begin.
    const uint turn = count - 1 - index, heads = uint(p.score.kv_heads * p.score.batch);
    T tile(p, q, k, v, mask, shared, lane, simdgroup, turn / heads, turn % heads);
    await_launches();
    tile.begin(positions, lengths);
    tile.share_queries();
    walk<COLUMNS, CHUNKS>(tile, y);
}
