extern "C" __global__ void __cluster_dims__(PARTS, 1, 1) __launch_bounds__(THREADS, RESIDENT)
    attention_paged_decode_blocks(KV* key_cache, KV* value_cache, const Q* queries, const Q* new_keys, const Q* new_values, const int* positions,
                                  const float* frequencies, const int* slots, const int* table, Y* y, const __grid_constant__ PagedDecodeSplitParams params,
                                  u32* error_flag) {
    const PagedParams& p = params.decode.paged;
    attend_tokens(p.attention, params.decode.token, params.split, key_cache, value_cache, queries, new_keys, new_values, positions, slots, i64(p.pages * p.page),
                  frequencies, y, Pages{p, table, error_flag}, error_flag);
}
