// What kernels have that deliver their results to the ranks of a group: see collective/delivery.rs.

template <typename P>
struct Delivering : P {
    Delivery delivery;
};
#define DELIVERING(P) Delivering<P>

inline u64 slot_of(const Delivery& delivery, u32 number) {
    return delivery.slots[delivery.rank] + 4 * u64(number * SLOT_ELEMENTS);
}

// Where elements of a result go beside memory: to all ranks, the own one among them.
struct Outbox {
    const Delivery& delivery;

    void send(u32 element, float value) const {
        if (delivery.to >= ROW_SLOTS) {
            return;
        }
        u32 bits;
        asm("mov.b32 %0, %1;" : "=r"(bits) : "f"(value));
        bits = bits == MISSING ? 0x7fffffffu : bits;
        const u64 place = 4 * (u64(delivery.to * SLOT_ELEMENTS) + delivery.rank * delivery.width + element);
#pragma unroll 1
        for (u32 rank = 0; rank < delivery.ranks; ++rank) {
            asm volatile("st.relaxed.sys.global.u32 [%0], %1;" : : "l"(delivery.slots[rank] + place), "r"(bits) : "memory");
        }
    }
};

template <typename P>
inline Outbox outbox(const P& p) {
    return Outbox{p.delivery};
}
