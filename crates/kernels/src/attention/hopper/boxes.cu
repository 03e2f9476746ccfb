// Keys in one piece: the unit that copies brings whole blocks of them where it can.

// Maps of keys and values for a thread block, or none. By all threads.
DEVICE const unsigned char* map_keys(Memory memory, unsigned char* maps, const KV* k, const KV* v, const Params& p) {
    const ScoreParams& s = p.score;
    const Rows keys = {k, s.k, s.keys, s.kv_heads, s.batch}, values = {v, p.v, s.keys, s.kv_heads, s.batch};
    if (!keys.are_mapped() || !values.are_mapped()) {
        return nullptr;
    }
    maps += blockIdx.x * 2 * MAP;
    if (threadIdx.x < 32) {
        make_maps(maps, memory.base + HEADER - 2 * MAP, keys, values, BLOCK);
    }
    __syncthreads();
    await_map(maps);
    await_map(maps + MAP);
    return maps;
}

// An item of so many bytes: `send` has the unit that copies bring it. Own tiles are announced here, as otherwise with an item that is copied.
template <typename Send>
DEVICE void send_item(Copier& copier, u32 bytes, Send send) {
    if (copier.items % COPYING == copier.warp) {
        copier.await_room(copier.memory.empty(copier.items), copier.items / STAGES % 2 ^ 1);
        if (copier.lane == 0) {
            expect(copier.memory.full(copier.items), bytes);
            send(copier.memory.stage(copier.items), copier.memory.full(copier.items));
        }
    }
    if (copier.pending) {
        copier.finish();
    }
    ++copier.items;
}

struct Boxes {
    const unsigned char* maps;

    // A block of a head's keys, or of its values, as an item.
    DEVICE void add(Copier& copier, bool of_values, const KV* rows, i64 stride, const Tile& tile, int kv_head, int first) const {
        if (maps != nullptr && tile.some.start <= first && first + BLOCK <= tile.some.end) {
            send_item(copier, 2 * WIDTH * BLOCK, [&](u32 stage, u32 full) { copy_tile<BLOCK>(stage, of_values ? maps + MAP : maps, tile.batch, kv_head, first, full); });
        } else {
            copier.copy_item(rows, stride, first, tile.some);
        }
    }
};
