// What the kernels share that gather the parts of ranks.
//
// A thread block exchanges with the blocks of its number on the other GPUs, by itself, and counts its exchanges. Marked words have two slots in turn: a peer
// writes a slot again after the exchange between, for which this block sends nothing before it has read the slot.

constexpr u32 BLOCKS = 128;  // At most.
constexpr u32 MARKING = 64;  // Blocks that exchange marked words, at most.
constexpr u32 RANKS = MOST_RANKS;

// Memory of a rank that the others write.
struct Inbox {
    // Of the slots of all ranks, and of `lost`, for the host.
    u64 addresses[RANKS + 1];
    // The exchange for which a peer is ready, and the one of which its part is there.
    u32 ready[BLOCKS][RANKS];
    u32 done[BLOCKS][RANKS];
    // Exchanges that this rank's blocks have made: of parts, and of marked words.
    u32 counts[2][BLOCKS];
    // The rank of which nothing came, and one; zero as long as none is lost. What is exchanged after that waits for nothing.
    u32 lost;
    // Of launches that push: those for which a peer has room, a rank's thread blocks that have pushed, launches of this rank, and their thread blocks.
    u32 room[RANKS];
    u32 pushed[RANKS];
    u32 launches;
    u32 blocks;
    // Launches of this rank that exchange results, and the thread blocks of one that have begun.
    u32 exchanges;
    u32 begun;
    u32 unused[1021 - 2 * BLOCKS - 4 * RANKS - 4];
    // Words beside the number of their exchange.
    uint4 words[MARKING][2][RANKS][512];
    // Rows that are delivered.
    u32 rows[ROW_SLOTS * SLOT_ELEMENTS];
    // Results that are exchanged, of each rank.
    u32 results[2][RANKS][RESULT_BYTES / 4];
};

DEVICE u32 lost_rank(const Inbox& own) { return *const_cast<const volatile u32*>(&own.lost); }

// Reports a rank of which nothing came, here and in what is exchanged after this.
DEVICE void lose(Inbox& own, u32 rank, u32* error_flag) {
    *const_cast<volatile u32*>(&own.lost) = rank + 1;
    atomicMax(error_flag, ~rank);
}

DEVICE u64 nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

DEVICE void raise(u32* flag, u32 to) { asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(to) : "memory"); }

// Ends when nothing has come for long. The clock takes longer to read than memory: it is asked once in many turns.
struct Patience {
    u64 since = 0;
    u32 turns = 0;

    DEVICE bool ends() {
        if (++turns % 1024 != 0) {
            return false;
        }
        const u64 now = nanoseconds();
        since = since == 0 ? now : since;
        return now - since > PATIENCE;
    }
};

// Waits for a flag that `rank` raises: zero once it has, or a rank that is lost, and one.
DEVICE u32 await_flag(const Inbox& own, const u32* flag, u32 to, u32 rank) {
    for (Patience patience;;) {
        u32 value;
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
        if (int(value - to) >= 0) {
            return 0;
        }
        const u32 lost = lost_rank(own);
        if (lost != 0 || patience.ends()) {
            return lost != 0 ? lost : rank + 1;
        }
    }
}

// Parameters of kernels.
#define OF_RANKS(T, name) T name##0, T name##1, T name##2, T name##3, T name##4, T name##5, T name##6, T name##7
#define LIST_OF_RANKS(name) name##0, name##1, name##2, name##3, name##4, name##5, name##6, name##7
