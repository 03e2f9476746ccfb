// Keys in pages: 32 neighbouring ones are in one.
struct Pages {
    const PagedParams& p;
    const int* table;
    u32* error_flag;

    DEVICE void copy(Copier& copier, u32 stage, const KV* rows, i64 stride, const Tile& tile, int first) const {
        const int* entries = table + i64(tile.batch) * i64(p.entries);
#pragma unroll 1
        for (int group = 0; group < BLOCK; group += GROUP) {
            const int key = first + group;
            const u64 index = u64(key) / p.page;
            const u32 entry = u32(entries[min(index, p.entries - 1)]);
            const bool exists = entry < p.pages;
            if (!exists && key < tile.some.end && tile.some.start < key + GROUP) {
                atomicMax(error_flag, ~u32(index));
            }
            const i64 slot = i64(exists ? entry : 0) * i64(p.page) + i64(u64(key) % p.page);
            copier.copy<GROUP, BLOCK>(stage + group * 128, rows + slot * stride, stride, 0, {tile.some.start - key, tile.some.end - key});
        }
    }

    static constexpr int GROUP = 32;
};
