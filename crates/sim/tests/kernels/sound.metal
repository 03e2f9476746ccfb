// Kernels that come near a bug and have none: nothing may be reported. Launches and buffers as in planted.metal.
#include <metal_stdlib>
using namespace metal;

// launch: 2 x 128
kernel void reduces_by_a_tree(device const float* a, device float* o, uint t [[thread_position_in_threadgroup]], uint g [[threadgroup_position_in_grid]]) {
    threadgroup float s[128];
    s[t] = a[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint d = 64; d > 0; d >>= 1) {
        if (t < d) s[t] += s[t + d];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (t == 0) o[g] = s[0];
}

// launch: 1 x 64
kernel void exchanges_within_simdgroups(device float* o, uint t [[thread_position_in_threadgroup]]) {
    threadgroup float s[64];
    for (uint k = 0; k < 3; k++) {
        s[t] = t + k;
        simdgroup_barrier(mem_flags::mem_threadgroup);
        o[t] = s[t ^ 31];
        simdgroup_barrier(mem_flags::mem_threadgroup);
    }
}

// launch: 1 x 128
kernel void reads_after_one_lane_wrote(device float* o, uint t [[thread_position_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                                       uint simdgroup [[simdgroup_index_in_threadgroup]]) {
    threadgroup float s[4];
    if (lane == 0) s[simdgroup] = t;
    simdgroup_barrier(mem_flags::mem_threadgroup);
    float mine = s[simdgroup];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    o[t] = mine + s[(simdgroup + 1) % 4];
}

// launch: 1 x 64
kernel void hands_device_memory_over(device float* a, device float* o, uint t [[thread_position_in_threadgroup]]) {
    a[t] = t;
    threadgroup_barrier(mem_flags::mem_device);
    o[t] = a[63 - t];
    threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
    a[t] = o[63 - t];
}

// launch: 1 x 64
kernel void alternates_two_tiles(device const float* a, device float* o, uint t [[thread_position_in_threadgroup]]) {
    threadgroup float s[2][64];
    float sum = 0;
    for (uint k = 0; k < 4; k++) {
        s[k & 1][t] = a[k * 64 + t];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        sum += s[k & 1][63 - t];
    }
    o[t] = sum;
}

// launch: 4 x 64
kernel void counts_atomically(device atomic_uint* o, uint t [[thread_position_in_threadgroup]]) {
    threadgroup atomic_uint count;
    if (t == 0) atomic_store_explicit(&count, 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    atomic_fetch_add_explicit(&count, t, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t == 0) atomic_fetch_add_explicit(&o[0], atomic_load_explicit(&count, memory_order_relaxed), memory_order_relaxed);
}

// launch: 1 x 64
kernel void mixes_widths(device uchar* o, uint t [[thread_position_in_threadgroup]]) {
    threadgroup float4 s[64];
    threadgroup float* one = (threadgroup float*)s;
    for (uint k = 0; k < 4; k++) one[4 * t + k] = k;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float4 all = s[63 - t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    threadgroup uchar* bytes = (threadgroup uchar*)s;
    bytes[t] = uchar(all.x + all.w);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    o[t] = bytes[63 - t];
}

// More barriers than an epoch counts.
// launch: 1 x 2, n = 70000
kernel void waits_often(device uint* o, constant uint& n, uint t [[thread_position_in_threadgroup]]) {
    threadgroup uint s[2];
    s[t] = t;
    for (uint k = 0; k < n; k++) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (t == (k & 1)) s[(k >> 1) & 1] += k;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    o[t] = s[t];
}

// launch: 1 x 64, n = 40
kernel void leaves_together(device float* o, constant uint& n, uint t [[thread_position_in_threadgroup]]) {
    for (uint k = 0; k < n; k++) {
        threadgroup_barrier(mem_flags::mem_none);
        if (k == 20) return;
    }
    o[t] = 1;
}

// launch: 1 x 64
kernel void asks_who_is_active(device uint* o, uint t [[thread_position_in_threadgroup]]) {
    if (t % 3 == 0) o[t] = uint(uint64_t(simd_active_threads_mask()));
}

// launch: 1 x 64, n = 31
kernel void shifts_and_divides_within_limits(device uint* o, constant uint& n, uint t [[thread_position_in_threadgroup]]) {
    o[t] = ((t << n) >> (n & t)) / (t + 1) + (1u << (t & n));
}

struct Unaligned {
    packed_float3 position;
    ushort flags[2];
};

// launch: 1 x 16
kernel void reads_packed_members(device const Unaligned* a, device float* o, uint t [[thread_position_in_threadgroup]]) {
    Unaligned item = a[t];
    float3 p = item.position;
    o[t] = p.x + p.z + item.flags[1];
}

// launch: 1 x 64
kernel void fills_what_it_reads(device float* fresh, device float* o, uint t [[thread_position_in_threadgroup]]) {
    fresh[t] = t;
    threadgroup_barrier(mem_flags::mem_device);
    o[t] = fresh[63 - t];
}

// launch: 4 x 64
kernel void writes_halves(device half* out, uint i [[thread_position_in_grid]]) {
    out[2 * i] = i;
    out[2 * i + 1] = -1.0h;
}

// launch: 1 x 64
kernel void sums_over_some_quads(device float* o, uint t [[thread_position_in_threadgroup]]) {
    float v = t;
    if (t % 8 < 4) v = quad_sum(v);
    o[t] = v;
}
