// Results that a launch pushes to the ranks that gather them, in place of a launch after it.
//
// Macro: PUSHES (whether it does, 0 or 1).
//
// The first thread block announces to the peers that this GPU is done with what its whole held before. Each thread block pushes once the peers have announced the
// same, and counts itself with all ranks when its results are there. The first one ends when the thread blocks of all ranks have done so: what follows this launch
// finds the whole.

#if PUSHES
#define PEERS_PARAMETERS OF_RANKS(Inbox*, inbox), OF_RANKS(unsigned char*, whole),
#define FLAG_PARAMETER , u32* error_flag
#define PEERS(push) {LIST_OF_RANKS(inbox), LIST_OF_RANKS(whole), push, error_flag}

struct Peers {
    Inbox *inbox0, *inbox1, *inbox2, *inbox3, *inbox4, *inbox5, *inbox6, *inbox7;
    unsigned char *whole0, *whole1, *whole2, *whole3, *whole4, *whole5, *whole6, *whole7;
    const Push& push;
    u32* error_flag;

    DEVICE Inbox* inbox(u32 rank) const {
        return rank == 0 ? inbox0 : rank == 1 ? inbox1 : rank == 2 ? inbox2 : rank == 3 ? inbox3 : rank == 4 ? inbox4 : rank == 5 ? inbox5 : rank == 6 ? inbox6 : inbox7;
    }
    DEVICE unsigned char* whole(u32 rank) const {
        return rank == 0 ? whole0 : rank == 1 ? whole1 : rank == 2 ? whole2 : rank == 3 ? whole3 : rank == 4 ? whole4 : rank == 5 ? whole5 : rank == 6 ? whole6 : whole7;
    }
    DEVICE bool is_peer(u32 rank) const { return rank < push.ranks && rank != push.rank; }

    DEVICE u32 number() const { return *const_cast<const volatile u32*>(&inbox(push.rank)->launches) + 1; }

    // To the peer of this thread's number, if there is one.
    DEVICE void announce(u32 thread) const {
        if (is_peer(thread)) {
            raise(&inbox(thread)->room[push.rank], number());
        }
    }

    // Whether the peer of this thread's number, if there is one, has room.
    DEVICE bool await_room(u32 thread) const {
        if (!is_peer(thread)) {
            return true;
        }
        Inbox& own = *inbox(push.rank);
        const u32 lost = lost_rank(own), without = await_flag(own, &own.room[thread], number(), thread);
        if (lost == 0 && without != 0) {
            *const_cast<volatile u32*>(&own.lost) = without;
        }
        return (lost | without) == 0;
    }

    // By the first warp of those that push, after all of them have.
    DEVICE void finish(u32 thread) const {
        if (thread < push.ranks) {
            __threadfence_system();
            asm volatile("red.relaxed.sys.global.add.u32 [%0], 1;" ::"l"(&inbox(thread)->pushed[push.rank]) : "memory");
        }
        if (blockIdx.x != 0) {
            return;
        }
        Inbox& own = *inbox(push.rank);
        const u32 before = lost_rank(own), blocks = own.blocks + gridDim.x;
        const u32 without = thread < push.ranks ? await_flag(own, &own.pushed[thread], blocks, thread) : 0, lost = before != 0 ? before : without;
        if (lost != 0) {
            lose(own, lost - 1, error_flag);
        }
        __syncwarp();
        if (thread == 0) {
            own.launches += 1;
            own.blocks = blocks;
        }
    }
};
#else
#define PEERS_PARAMETERS
#define FLAG_PARAMETER
#define PEERS(push) {push}

struct Peers {
    const Push& push;

    DEVICE unsigned char* whole(u32) const { return nullptr; }
    DEVICE void announce(u32) const {}
    DEVICE bool await_room(u32) const { return false; }
    DEVICE void finish(u32) const {}
};
#endif
