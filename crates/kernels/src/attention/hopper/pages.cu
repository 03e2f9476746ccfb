// Keys in pages: 32 neighbouring ones are in one.
struct Pages {
    const PagedParams& p;
    const int* table;
    u32* error_flag;

    template <int COUNT>
    DEVICE void copy(int lane, u32 to, const KV* rows, i64 stride, int batch, KeyRange some, int first) const {
        const int* entries = table + i64(batch) * i64(p.entries);
#pragma unroll 1
        for (int group = 0; group < COUNT; group += GROUP) {
            const int key = first + group;
            const u64 index = u64(key) / p.page;
            const u32 entry = u32(entries[min(index, p.entries - 1)]);
            const bool exists = entry < p.pages;
            if (!exists && key < some.end && some.start < key + GROUP) {
                atomicMax(error_flag, ~u32(index));
            }
            const i64 slot = i64(exists ? entry : 0) * i64(p.page) + i64(u64(key) % p.page);
            copy_rows<GROUP, BLOCK>(lane, to + group * 128, rows + slot * stride, stride, 0, {some.start - key, some.end - key});
        }
    }

    // A block of keys or values as an item of a ring.
    template <typename Copier, typename Tile>
    DEVICE void add(Copier& copier, bool, const KV* rows, i64 stride, const Tile& tile, int, int first) const {
        copier.add_item([&](u32 stage) { copy<BLOCK>(copier.lane, stage, rows, stride, tile.batch, tile.some, first); }, [] {});
    }

    static constexpr int GROUP = 32;
};
