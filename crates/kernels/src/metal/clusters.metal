// Clusters: threadgroups that run at once and read each other's memory, on CUDA devices; elsewhere a cluster is one threadgroup.
#ifdef CLUSTERS
// Until all are here, and what they wrote can be read.
inline void meet_cluster() {
    elv::meet_cluster();
}

// Until none reads what others have.
inline void leave_cluster() {
    elv::leave_cluster();
}

// What the threadgroup of this number in the cluster has where this one has `from`.
inline float load_from(uint number, threadgroup const float* from) {
    return elv::load_from_cluster(number, from);
}
#else
inline void meet_cluster() {
    threadgroup_barrier(mem_flags::mem_threadgroup);
}
inline void leave_cluster() {}
inline float load_from(uint, threadgroup const float* from) {
    return *from;
}
#endif
