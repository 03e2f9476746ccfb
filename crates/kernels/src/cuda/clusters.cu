// Thread blocks of a cluster, and what they have in shared memory.

// Until all of them are here, and what they wrote can be read.
DEVICE void meet() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Until none of them reads what others have; nothing is reported.
DEVICE void leave() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
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

DEVICE float4 load_from(u32 block, const float4& here) {
    float4 value;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "r"(address_in(block, &here))
                 : "memory");
    return value;
}

// At a barrier of another thread block of the cluster.
DEVICE void arrive_in(u32 block, u32 barrier) {
    asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nmbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(barrier), "r"(block)
                 : "memory");
}
