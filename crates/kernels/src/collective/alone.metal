// What kernels have that can deliver their results to the ranks of a group (collective/delivery.rs), where they do not.
#define DELIVERING(P) P

struct Outbox {
    void send(u32, float) const {}
};

template <typename P>
inline Outbox outbox(P) {
    return Outbox();
}
