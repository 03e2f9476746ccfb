// What the kernels share that gather the parts of ranks.
//
// A thread block exchanges pieces with the blocks of its number on the other GPUs, by itself, and counts its exchanges. Inboxes have two slots in turn: a peer
// writes a slot again after the exchange between, for which this block sends nothing before it has read the slot.

constexpr u32 PIECE = 8192;               // Bytes of a piece.
constexpr u32 BLOCKS = 64;                // At most.
constexpr u32 RANKS = 8;                  // At most.
constexpr u64 PATIENCE = 10000000000ull;  // Nanoseconds.

// Memory of a rank that the others write.
struct Inbox {
    // The exchange of which a peer's piece is there.
    u32 flags[BLOCKS][RANKS];
    // Exchanges that this rank's blocks have made: of pieces, and of marked words.
    u32 counts[2][BLOCKS];
    u32 unused[1024 - BLOCKS * RANKS - 2 * BLOCKS];
    unsigned char pieces[BLOCKS][2][RANKS][PIECE];
    // Words beside the number of their exchange.
    uint4 words[BLOCKS][2][RANKS][PIECE / 16];
};

DEVICE u64 nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}
