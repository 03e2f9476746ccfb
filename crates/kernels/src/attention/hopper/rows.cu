// Rows that the unit that copies brings by maps.

// Rows of heads of sequences.
struct Rows {
    const KV* first;
    const View& view;
    u64 tokens;
    u64 heads;
    u64 batch;

    // Whether the unit that copies takes them: they begin at multiples of sixteen bytes, and strides are positive.
    DEVICE bool are_mapped() const {
        const bool ascend = view.token > 0 && (heads == 1 || view.head > 0) && (batch == 1 || view.batch > 0);
        return ascend && ((u64(first) | 2 * (view.origin | view.token | view.head | view.batch)) & 15) == 0;
    }

    // By boxes of `height` rows.
    DEVICE Mapped<4> mapped(u32 height) const {
        const i64 of_heads = heads == 1 ? view.token : view.head, of_batch = batch == 1 ? view.token : view.batch;
        return {first + view.origin, {WIDTH, u32(tokens), u32(heads), u32(batch)}, {u64(2 * view.token), u64(2 * of_heads), u64(2 * of_batch)}, height};
    }
};

// By a warp, by way of shared memory: maps of two.
DEVICE void make_maps(unsigned char* maps, u32 shared, const Rows& a, const Rows& b, u32 height) {
    if (threadIdx.x % 32 == 0) {
        make_map(shared, a.mapped(height));
        make_map(shared + MAP, b.mapped(height));
    }
    __syncwarp();
    publish_map(maps, shared);
    publish_map(maps + MAP, shared + MAP);
}

// HEIGHT rows of a head, to panels beside each other.
template <int HEIGHT>
DEVICE void copy_tile(u32 to, const unsigned char* map, int batch, int head, int first, u32 full) {
#pragma unroll
    for (int column = 0; column < WIDTH; column += PANEL) {
        copy_box(to + column / PANEL * 128 * HEIGHT, map, column, first, head, batch, full);
    }
}
