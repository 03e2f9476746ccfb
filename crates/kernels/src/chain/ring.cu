// The ring of pieces in shared memory by which thread blocks of few rows take their products.
//
// Macro beside those of tiles.cu: PANELS (of a piece).

constexpr u32 COMPUTERS = 128, ROW_SENDERS = 128;

// Bytes of a piece in shared memory.
DEVICE u32 piece_bytes(const ChainProduct& p) { return PANELS * (EIGHTS + (HELD ? 0 : p.eights)) * ATOM; }

// A place of the ring in shared memory: panels of matrices, then those of rows unless they are held.
struct Place {
    u32 barriers;
    u32 memory;
    const ChainProduct& p;
    u32 stage;
    u32 parity;

    DEVICE u32 full() const { return barriers + 16 * stage; }
    DEVICE u32 empty() const { return full() + 8; }
    DEVICE u32 columns() const { return memory + stage * piece_bytes(p); }
    DEVICE u32 rows() const { return columns() + PANELS * EIGHTS * ATOM; }

    DEVICE void advance() {
        if (++stage == p.stages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// What this thread sent for is there, once it is.
template <bool WIDE>
DEVICE void finish(u32 barrier) {
    if constexpr (WIDE) {
        arrive_after_copies(barrier);
    } else {
        asm volatile("fence.proxy.async;" ::: "memory");
        arrive(barrier);
    }
}
