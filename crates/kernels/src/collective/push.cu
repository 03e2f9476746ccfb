// Results that a launch pushes to the ranks that gather them, in place of a launch after it.
//
// The first thread block announces to the peers that this GPU is done with what its whole held before. Each thread block pushes once the peers have announced the
// same, and counts itself with them when its results are there; `await_pushes` ends when all thread blocks of all peers have.

struct Peers {
    Inbox* inboxes[RANKS];
    unsigned char* wholes[RANKS];
    const Push& push;

    DEVICE bool exist() const { return push.ranks > 0; }

    // What this rank has of those.
    template <typename T>
    DEVICE T* own(T* const (&of_ranks)[RANKS]) const {
        T* own = of_ranks[0];
#pragma unroll
        for (u32 rank = 1; rank < RANKS; ++rank) {
            own = rank == push.rank ? of_ranks[rank] : own;
        }
        return own;
    }

    // For the peer of this thread's number, if there is one.
    template <typename Body>
    DEVICE void with_peer(u32 thread, const Body& body) const {
#pragma unroll
        for (u32 rank = 0; rank < RANKS; ++rank) {
            if (thread == rank && rank < push.ranks && rank != push.rank) {
                body(*inboxes[rank]);
            }
        }
    }

    DEVICE u32 number() const { return *const_cast<const volatile u32*>(&own(inboxes)->launches) + 1; }

    DEVICE void announce(u32 thread) const {
        with_peer(thread, [&](Inbox& peer) { raise(&peer.room[push.rank], number()); });
    }

    // Whether the peer of this thread's number, if there is one, has room.
    DEVICE bool await_room(u32 thread) const {
        bool has_room = true;
        with_peer(thread, [&](Inbox&) {
            Inbox& here = *own(inboxes);
            has_room = lost_rank(here) == 0 && is_raised(&here.room[thread], number());
            if (!has_room && lost_rank(here) == 0) {
                *const_cast<volatile u32*>(&here.lost) = thread + 1;
            }
        });
        return has_room;
    }

    // After all threads of this block have pushed.
    DEVICE void count(u32 thread) const {
        with_peer(thread, [&](Inbox& peer) {
            __threadfence_system();
            asm volatile("red.relaxed.sys.global.add.u32 [%0], 1;" ::"l"(&peer.pushed[push.rank]) : "memory");
        });
    }
};
