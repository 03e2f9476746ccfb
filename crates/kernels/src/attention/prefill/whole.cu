extern "C" __global__ void __launch_bounds__(384, 1) attention_prefill(const Q* q, const KV* k, const KV* v, const void*, const int* positions,
                                                                       const int* lengths, Y* y, const __grid_constant__ Params p) {
    attend_all(p, q, k, v, positions, lengths, y, Whole());
}
