// A token of one text, over caches in one piece.

template <typename Q, typename KV, uint ROWS, uint LANES, uint COLUMNS, uint CHUNKS, uint CLUSTER>
[[kernel, max_total_threads_per_threadgroup(512)]] void attention_decode(
    device KV* cache [[buffer(0)]],
    device KV* value_cache [[buffer(1)]],
    device const Q* queries [[buffer(2)]],
    device const Q* rows [[buffer(3)]],
    device const Q* values [[buffer(4)]],
    device const int* positions [[buffer(5)]],
    device const float* frequencies [[buffer(6)]],
    device float* sums [[buffer(7)]],
    device float* states [[buffer(8)]],
    device Q* y [[buffer(9)]],
    constant DecodeParams& params [[buffer(10)]],
    device atomic_uint* error_flag [[buffer(11)]],
    threadgroup float* shared [[threadgroup(0)]],
    uint index [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const int position = positions[0];
    const Place place = {0, position, position, position >= 0 && ulong(position) < params.attention.score.keys};
    attend_token<ROWS, LANES, COLUMNS, CHUNKS, CLUSTER>(
        cache, value_cache, queries, rows, values, positions, frequencies, sums, states, y, params.attention, params.token, Stored{}, place, error_flag, shared, index,
        lane, simdgroup);
}
