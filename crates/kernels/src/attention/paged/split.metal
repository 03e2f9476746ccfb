// Attention of few queries over pages: as split.metal.

template <typename Q, typename KV, uint ROWS, uint LANES, uint COLUMNS, uint CHUNKS, uint CLUSTER>
[[kernel, max_total_threads_per_threadgroup(512)]] void attention_paged_split(
    device const Q* q [[buffer(0)]],
    device const KV* k [[buffer(1)]],
    device const KV* v [[buffer(2)]],
    device const int* table [[buffer(3)]],
    device const int* positions [[buffer(4)]],
    device float* sums [[buffer(5)]],
    device float* states [[buffer(6)]],
    device Q* y [[buffer(7)]],
    constant PagedParams& params [[buffer(8)]],
    device atomic_uint* error_flag [[buffer(9)]],
    threadgroup float* shared [[threadgroup(0)]],
    uint index [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    typedef Tile<Q, KV, bool, ROWS, LANES, COLUMNS, CHUNKS, Paged> T;
    constant Params& p = params.attention;
    const uint blocks = (uint(p.score.keys) + BLOCK - 1) / BLOCK, block = index % blocks, heads = uint(p.score.kv_heads * p.score.batch);
    T tile(p, q, k, v, nullptr, shared, lane, simdgroup, index / blocks / heads, index / blocks % heads);
    tile.newest = {table + ulong(tile.batch) * params.entries, uint(params.entries), uint(params.page), uint(params.pages), error_flag, 0, 0, false};
    await_launches();
    tile.begin(positions, nullptr);
    const Shared<T> left = {reinterpret_cast<threadgroup float*>(tile.ranges + ROWS)};
    if (tile.first_block() <= block && block < tile.last_block()) {
        tile.start_keys(block);
        tile.share_queries();
        if (CLUSTER > 0) {
            sum_block<ROWS, COLUMNS, CHUNKS>(tile, block, left);
        } else {
            sum_block<ROWS, COLUMNS, CHUNKS>(tile, block, Left{sums, states, blocks, block});
        }
    }
    if (CLUSTER > 0) {
        left.combine(tile, block, blocks, y);
    }
}
