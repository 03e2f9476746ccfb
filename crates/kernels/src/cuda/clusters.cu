// Thread blocks of a cluster, and what they have in shared memory.

// Until all of them are here, and what they wrote into shared memory can be read. A release of all memory would wait for device memory, too.
DEVICE void meet() {
#if 100 * __CUDACC_VER_MAJOR__ + __CUDACC_VER_MINOR__ >= 1208
    asm volatile("fence.release.sync_restrict::shared::cta.cluster;" ::: "memory");
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#else
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// For all of them to know that this one is here, and until all others are; what they wrote need not be there.
DEVICE void arrive_at_cluster() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
DEVICE void await_cluster() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

// Until none of them reads what others have.
DEVICE void leave() {
    arrive_at_cluster();
    await_cluster();
}

// Where another thread block of the cluster has what this one has `here`.
DEVICE u32 address_in(u32 block, const void* here) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(u32(__cvta_generic_to_shared(here))), "r"(block));
    return there;
}

DEVICE float load_from(u32 block, const float& here) {
    float value;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address_in(block, &here)) : "memory");
    return value;
}

// Stores into the shared memory of a thread block of the cluster, whose barrier counts the four bytes: addresses of `address_in`.
DEVICE void send(u32 to, float x, u32 barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(to), "f"(x), "r"(barrier) : "memory");
}

// At a barrier of another thread block of the cluster.
DEVICE void arrive_in(u32 block, u32 barrier) {
    asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nmbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(barrier), "r"(block)
                 : "memory");
}
