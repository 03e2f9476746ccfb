extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    attention_paged_blocks(const Q* q, const KV* k, const KV* v, const int* table, const int* positions, Y* y, float* found, const __grid_constant__ PagedSplitParams p,
                           u32* error_flag) {
    attend_all(p.paged.attention, p.split, q, k, v, positions, nullptr, y, found, Pages{p.paged, table, error_flag});
}
