extern "C" __global__ void __launch_bounds__(384, 1)
    attention_prefill(const Q* q, const KV* k, const KV* v, const void*, const int* positions, const int* lengths, Y* y, unsigned char* maps,
                      const __grid_constant__ Params p) {
    const Memory memory = prepare();
    attend_all(memory, p, q, k, v, positions, lengths, y, Boxes{map_keys(memory, maps, k, v, p)});
}
