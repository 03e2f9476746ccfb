extern "C" __global__ void __cluster_dims__(PARTS, 1, 1) __launch_bounds__(THREADS, RESIDENT)
    attention_decode_blocks(KV* key_cache, KV* value_cache, const Q* queries, const Q* new_key, const Q* new_value, const int* positions, const float* frequencies,
                            Y* y, const __grid_constant__ DecodeSplitParams params, u32* error_flag) {
    const DecodeParams& p = params.decode;
    attend_tokens(p.attention, p.token, params.split, key_cache, value_cache, queries, new_key, new_value, positions, nullptr, p.attention.score.keys, frequencies, y,
                  Whole(), error_flag);
}
