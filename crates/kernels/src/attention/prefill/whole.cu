extern "C" __global__ void __launch_bounds__(384, 1)
    attention_prefill(const Q* q, const KV* k, const KV* v, const void*, const int* positions, const int* lengths, Y* y, unsigned char* maps,
                      PEERS_PARAMETERS const __grid_constant__ PrefillParams p FLAG_PARAMETER) {
    const Memory memory = prepare();
    const Peers peers = PEERS(p.push);
    attend_all(memory, p.attention, q, k, v, positions, lengths, y, peers, Boxes{map_keys(memory, maps, k, v, p.attention)});
}
