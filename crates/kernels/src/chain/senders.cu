// Senders of matrices of ELEMENT: a thread for sixteen bytes of every sixteenth row.

// Threads that send, reports of them for each piece, and bytes that they decode.
constexpr u32 SENDERS = 128, REPORTS = SENDERS, COMING = 0;

template <bool WIDE>
DEVICE void send(Place place, const Layer (&layers)[3], u32 height, unsigned char*) {
    constexpr u32 EVERY = SENDERS / 8, COUNT = (COLUMNS + EVERY - 1) / EVERY;
    const ChainProduct& p = place.p;
    const u32 thread = threadIdx.x - COMPUTERS, unit = thread % 8, row = thread / 8;
    const u32 at = row * 128 + (unit ^ row % 8) * 16;
    for (u32 index = blockIdx.x; index < p.ends[2]; index += gridDim.x) {
        const Tile tile(p, layers, index, height);
        const ELEMENT* from[COUNT];
#pragma unroll
        for (u32 r = 0; r < COUNT; ++r) {
            const u32 column = row + r * EVERY;
            const bool is_up = column >= height;
            from[r] = (is_up ? layers[1].w : tile.layer.w) + min(tile.first + column - (is_up ? height : 0), u32(tile.layer.n) - 1) * p.k + unit * 8;
        }
        for (u32 piece = 0; piece < p.pieces; ++piece, place.advance()) {
            wait(place.empty(), place.parity ^ 1);
#pragma unroll 1
            for (u32 panel = 0; panel < PANELS; ++panel) {
                const u32 to = place.columns() + panel * EIGHTS * ATOM + at, start = (piece * PANELS + panel) * PANEL;
#pragma unroll
                for (u32 r = 0; r < COUNT; ++r) {
                    if (COLUMNS % EVERY == 0 || row + r * EVERY < COLUMNS) {
                        copy_unit<WIDE>(to + r * EVERY * 128, from[r] + start);
                    }
                }
            }
            finish<WIDE>(place.full());
        }
    }
}
