extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    attention_blocks(const Q* q, const KV* k, const KV* v, const void*, const int* positions, const int* lengths, Y* y, float* found,
                     const __grid_constant__ AttentionSplitParams p) {
    attend_all(p.attention, p.split, q, k, v, positions, lengths, y, found, Whole());
}
