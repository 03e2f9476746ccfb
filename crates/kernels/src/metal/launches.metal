// Where launches overlap, a kernel of a text with this file may begin before those ahead have ended: it reads what the host says is read early, then waits,
// and lets the next one come.
#ifdef OVERLAPPING_LAUNCHES
inline void await_launches() {
    elv::await_launches();
    elv::let_next_come();
}
#else
inline void await_launches() {}
#endif
