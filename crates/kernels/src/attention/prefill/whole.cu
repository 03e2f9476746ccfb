// Keys in one piece.
struct Whole {
    DEVICE void copy(Copier& copier, u32 stage, const KV* rows, i64 stride, const Tile& tile, int first) const {
        copier.copy<BLOCK, BLOCK>(stage, rows, stride, first, tile.some);
    }
};

extern "C" __global__ void __launch_bounds__(384, 1) attention_prefill(const Q* q, const KV* k, const KV* v, const void*, const int* positions,
                                                                       const int* lengths, Q* y, const __grid_constant__ Params p) {
    attend_all(p, q, k, v, positions, lengths, y, Whole());
}
