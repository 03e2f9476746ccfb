// Keys in one piece.
struct Whole {
    DEVICE void copy(Copier& copier, u32 stage, const KV* rows, i64 stride, const Tile& tile, int first) const {
        copier.copy<BLOCK, BLOCK>(stage, rows, stride, first, tile.some);
    }
};
