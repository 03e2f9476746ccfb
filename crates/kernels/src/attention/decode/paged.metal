// Tokens of several texts, over pages.

template <typename Q, typename KV, uint ROWS, uint LANES, uint COLUMNS, uint CHUNKS, uint CLUSTER>
[[kernel, max_total_threads_per_threadgroup(512)]] void attention_paged_decode(
    device KV* cache [[buffer(0)]],
    device KV* value_cache [[buffer(1)]],
    device const Q* queries [[buffer(2)]],
    device const Q* rows [[buffer(3)]],
    device const Q* values [[buffer(4)]],
    device const int* positions [[buffer(5)]],
    device const float* frequencies [[buffer(6)]],
    device const int* slots [[buffer(7)]],
    device const int* table [[buffer(8)]],
    device float* sums [[buffer(9)]],
    device float* states [[buffer(10)]],
    device Q* y [[buffer(11)]],
    constant PagedDecodeParams& params [[buffer(12)]],
    device atomic_uint* error_flag [[buffer(13)]],
    threadgroup float* shared [[threadgroup(0)]],
    uint index [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    constant PagedParams& paged = params.paged;
    const uint text = text_of(paged.attention, index);
    const long slot = slots[text];
    const Place place = {text, positions[text * paged.attention.score.position_stride], slot, slot >= 0 && slot < long(paged.pages * paged.page)};
    const Paged places = {table + ulong(text) * paged.entries, uint(paged.entries), uint(paged.page), uint(paged.pages), error_flag, 0, 0, false};
    attend_token<ROWS, LANES, COLUMNS, CHUNKS, CLUSTER>(
        cache, value_cache, queries, rows, values, positions, frequencies, sums, states, y, paged.attention, params.token, places, place, error_flag, shared, index,
        lane, simdgroup);
}
