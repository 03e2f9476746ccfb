// Where launches overlap, a kernel of a text with this file may begin before those ahead have ended: it reads what the host says is read early, then waits.
#ifdef OVERLAPPING_LAUNCHES
inline void await_launches() {
    elv::await_launches();
}

// Lets the next launch's threadgroups come before this one has waited, where they find a place.
inline void trigger_launches() {
    elv::trigger_launches();
}
#else
inline void await_launches() {}
inline void trigger_launches() {}
#endif
