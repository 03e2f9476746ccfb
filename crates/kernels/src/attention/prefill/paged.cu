extern "C" __global__ void __launch_bounds__(384, 1)
    attention_paged_prefill(const Q* q, const KV* k, const KV* v, const int* table, const int* positions, Y* y, const __grid_constant__ PagedParams p,
                            u32* error_flag) {
    const Push none = {};
    attend_all(prepare(), p.attention, q, k, v, positions, nullptr, y, Peers{none}, Pages{p, table, error_flag});
}
