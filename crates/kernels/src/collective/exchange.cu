// Small results that the ranks exchange as soon as threads have them, in place of a launch after this one.
//
// Macro: PUSHES (whether it does, 0 or 1).
//
// A rank has two slots for results, which such launches use in turn; all words of both are missing at first. A thread stores units of its rank's result in the slots of
// the peers, and takes those of the peers at the same places from its own slot once they are there, which makes them missing again. A peer writes to that slot again in
// the launch after the next one, when it has taken all that this rank sent in the next one; this rank sent that when the launch that emptied the slot had ended.

// Sixteen bytes, of which no word is missing.
typedef uint4 Unit;

// Elements from `from` on as they are exchanged, of type T.
template <typename T>
DEVICE Unit unit_of(const float* from) {
    u32 words[4];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        if constexpr (sizeof(T) == 4) {
            words[i] = __float_as_uint(from[i]);
        } else {
            words[i] = pack<T>(from[2 * i], from[2 * i + 1]);
        }
        words[i] = words[i] == MISSING ? 0x7fff7fffu : words[i];
    }
    return {words[0], words[1], words[2], words[3]};
}

DEVICE bool has_missing(Unit x) { return x.x == MISSING || x.y == MISSING || x.z == MISSING || x.w == MISSING; }

DEVICE void store_unit(Unit* to, Unit x) {
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

DEVICE Unit load_unit(const Unit* from) {
    Unit x;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(from) : "memory");
    return x;
}

// A unit of a result whose rows have `width` of them.
struct Placed {
    u32 row;
    u32 unit;
    u32 width;
};

#if PUSHES
struct Exchange {
    const Peers& peers;
    u32 number;
    u32 lost;

    // By all threads that exchange, when the launches ahead have ended.
    DEVICE explicit Exchange(const Peers& peers) : peers(peers) {
        Inbox& own = *peers.inbox(peers.push.rank);
        number = *const_cast<const volatile u32*>(&own.exchanges);
        lost = lost_rank(own);
    }

    // By one thread of each thread block, when all have their number: the last one makes it the next launch's.
    DEVICE void begin() const {
        Inbox& own = *peers.inbox(peers.push.rank);
        if (atomicAdd(&own.begun, 1) == gridDim.x - 1) {
            own.begun = 0;
            own.exchanges = number + 1;
        }
        if (lost != 0) {
            lose(own, lost - 1, peers.error_flag);
        }
    }

    // A unit of a part in a slot of a rank.
    DEVICE Unit* slot(u32 rank, u32 part, Placed at) const {
        return reinterpret_cast<Unit*>(peers.inbox(rank)->results[number % 2][part]) + at.row * at.width + at.unit;
    }

    DEVICE void keep(u32 part, Placed at, Unit x) const {
        Unit* const whole = reinterpret_cast<Unit*>(peers.whole(peers.push.rank));
        whole[(u64(at.row) * peers.push.ranks + part) * at.width + at.unit] = x;
    }

    // A unit of this rank's result, to all ranks.
    DEVICE void send(Placed at, Unit x) const {
#pragma unroll
        for (u32 rank = 0; rank < RANKS; ++rank) {
            if (peers.is_peer(rank)) {
                store_unit(slot(rank, peers.push.rank, at), x);
            }
        }
        keep(peers.push.rank, at, x);
    }

    // The units of the peers at the same place. After a rank that is lost nothing is waited for.
    DEVICE void take(Placed at) {
#pragma unroll 1
        for (u32 rank = 0; rank < peers.push.ranks && lost == 0; ++rank) {
            if (!peers.is_peer(rank)) {
                continue;
            }
            Unit* const from = slot(peers.push.rank, rank, at);
            Unit x = load_unit(from);
            for (Patience patience; has_missing(x); x = load_unit(from)) {
                if (patience.ends()) {
                    lose(*peers.inbox(peers.push.rank), rank, peers.error_flag);
                    lost = rank + 1;
                    return;
                }
            }
            keep(rank, at, x);
            *from = {MISSING, MISSING, MISSING, MISSING};
        }
    }
};
#else
struct Exchange {
    DEVICE explicit Exchange(const Peers&) {}

    DEVICE void begin() const {}
    DEVICE void send(Placed, Unit) const {}
    DEVICE void take(Placed) {}
};
#endif
