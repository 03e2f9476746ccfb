// Where launches overlap, a kernel of a text with this file may begin before those ahead have ended: it reads what the host says is read early, then waits.
#ifdef OVERLAPPING_LAUNCHES
inline void await_launches() {
    elv::await_launches();
}

// Lets the next launch's threadgroups come before this one has waited, where they find a place.
inline void trigger_launches() {
    elv::trigger_launches();
}

// Has the L2 cache fetch what is read later, `bytes` bytes; these and the address are multiples of 16.
inline void fetch_ahead(device const uchar* from, uint bytes) {
    elv::fetch_ahead(from, bytes);
}
#else
inline void await_launches() {}
inline void trigger_launches() {}
inline void fetch_ahead(device const uchar*, uint) {}
#endif
