// A row that ranks deliver, or that is given, for kernels in Metal's language: see collective/delivery.rs. It has whole eights.

struct ArrivingRow {
    typedef float Element;

    const Delivery& delivery;
    // Where the host has the row, and where it is read.
    const float* given;
    u64 from;
    uint n;
    Here here;
    // Of a threadgroup.
    uint threads;
    bool arrives;
    bool is_first;
    uint turns;
    u64 since;

    void load_whole(uint k, float other, float (&to)[SLOTS]) const {
        if (k >= n) {
            for (uint i = 0; i < SLOTS; ++i) {
                to[i] = other;
            }
            return;
        }
        for (uint i = 0; i < SLOTS; i += 4) {
            asm volatile("ld.relaxed.sys.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(to[i]), "=f"(to[i + 1]), "=f"(to[i + 2]), "=f"(to[i + 3])
                         : "l"(from + 4 * u64(k + i))
                         : "memory");
        }
    }

    // All launches that read the slot before have ended: its elements are missing again. Threads without elements of the row do not come here.
    void clear() const {
        const u64 slot = slot_of(delivery, (delivery.from + ROW_SLOTS - 1) % ROW_SLOTS);
        const uint sharing = min(threads, n / SLOTS), thread_index = here.thread_index();
        const uint first = thread_index < sharing ? here.group * sharing + thread_index : delivery.clear;
        for (uint i = first; i < delivery.clear; i += here.groups * sharing) {
            asm volatile("st.relaxed.sys.global.u32 [%0], %1;" : : "l"(slot + 4 * u64(i)), "r"(MISSING) : "memory");
        }
    }

    // Once in many turns: gives up if a rank is lost, and reports one that has sent nothing for long.
    void wait() {
        u32 lost;
        u64 now;
        if (++turns % 1024 != 0) {
            return;
        }
        asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(lost) : "l"(delivery.lost) : "memory");
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        since = since == 0 ? now : since;
        arrives = lost == 0;
        for (uint k = 0; k < n && arrives && now - since > PATIENCE; ++k) {
            u32 bits;
            asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(bits) : "l"(from + 4 * u64(k)) : "memory");
            if (bits == MISSING) {
                asm volatile("st.relaxed.sys.global.u32 [%0], %1;" : : "l"(delivery.lost), "r"(k * delivery.ranks / n + 1) : "memory");
                arrives = false;
            }
        }
        from = arrives ? from : u64(given);
    }
};

template <typename P>
inline ArrivingRow incoming(const float* x, uint n, const P& p, Here here, uint threads) {
    const bool arrives = p.delivery.from < ROW_SLOTS;
    return {p.delivery, x, arrives ? slot_of(p.delivery, p.delivery.from) : u64(x), n, here, threads, arrives, true, 0, 0};
}

inline void await_row(const ArrivingRow&) {
    await_launches();
}

// Whether elements that were loaded are still to come.
template <uint N>
inline bool lacks(ArrivingRow& row, const float (&loaded)[N][SLOTS]) {
    // While the first ones are in flight.
    if (row.arrives && row.is_first) {
        row.is_first = false;
        row.clear();
    }
    float sum = 0.0f;
    bool lacks = false;
    for (uint v = 0; v < N; ++v) {
        for (uint i = 0; i < SLOTS; ++i) {
            asm("fma.rn.f32 %0, %1, 0f00000000, %0;" : "+f"(sum) : "f"(loaded[v][i]));
        }
    }
    // Only a NaN or an infinity makes it one.
    if (row.arrives && sum != sum) {
        for (uint v = 0; v < N; ++v) {
            for (uint i = 0; i < SLOTS; ++i) {
                lacks = lacks || as_type<uint>(loaded[v][i]) == MISSING;
            }
        }
    }
    if (lacks) {
        row.wait();
    }
    return lacks;
}

// One threadgroup puts elements where the host has the row: others may read it there.
inline void keep(const ArrivingRow& row, uint k, const float (&loaded)[SLOTS]) {
    if (row.arrives && row.here.group == 0 && k < row.n) {
        store_wide(const_cast<float*>(row.given) + k, loaded);
    }
}

// The elements of a thread's visits, once they have arrived.
template <uint VISITS>
inline void visit(ArrivingRow& row, uint first, uint stride, float other, float (&kept)[VISITS][SLOTS]) {
    do {
#pragma unroll
        for (uint v = 0; v < VISITS; ++v) {
            row.load_whole(first + v * stride, other, kept[v]);
        }
    } while (lacks(row, kept));
    for (uint v = 0; v < VISITS; ++v) {
        keep(row, first + v * stride, kept[v]);
    }
}
