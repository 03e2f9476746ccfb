// Attention of few queries: a threadgroup for each tile of rows and block of keys, so that a long context keeps the whole GPU busy. The sums of each
// block go to memory, for combine.metal to put together in order: 4 bytes for each element of a value and row, against 2 · 256 elements read. The threadgroups
// of a cluster, one for each block, put them together themselves.

template <typename Q, typename KV, typename M, uint ROWS, uint LANES, uint COLUMNS, uint CHUNKS, uint CLUSTER>
[[kernel, max_total_threads_per_threadgroup(512)]] void attention_split(
    device const Q* q [[buffer(0)]],
    device const KV* k [[buffer(1)]],
    device const KV* v [[buffer(2)]],
    device const M* mask [[buffer(3)]],
    device const int* positions [[buffer(4)]],
    device const int* lengths [[buffer(5)]],
    device float* sums [[buffer(6)]],
    device float* states [[buffer(7)]],
    device Q* y [[buffer(8)]],
    constant Params& p [[buffer(9)]],
    threadgroup float* shared [[threadgroup(0)]],
    uint index [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    typedef Tile<Q, KV, M, ROWS, LANES, COLUMNS, CHUNKS> T;
    const uint blocks = (uint(p.score.keys) + BLOCK - 1) / BLOCK, block = index % blocks, heads = uint(p.score.kv_heads * p.score.batch);
    T tile(p, q, k, v, mask, shared, lane, simdgroup, index / blocks / heads, index / blocks % heads);
    await_launches();
    tile.begin(positions, lengths);
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
