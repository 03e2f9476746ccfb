// Kernels for launches whose last threadgroups are smaller.
#include <metal_stdlib>
using namespace metal;

kernel void vector_add(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]], device float* c [[buffer(2)]],
                       uint id [[thread_position_in_grid]]) {
    c[id] = a[id] + b[id];
}

static void put(device uint*& out, uint3 value) {
    out[0] = value.x;
    out[1] = value.y;
    out[2] = value.z;
    out += 3;
}

// 32 numbers a thread.
kernel void attributes(device const uint* x [[buffer(0)]], device uint* out [[buffer(1)]], uint3 in_grid [[thread_position_in_grid]], uint3 in_group [[thread_position_in_threadgroup]],
                       uint3 group [[threadgroup_position_in_grid]], uint3 size [[threads_per_threadgroup]], uint3 threads [[threads_per_grid]],
                       uint3 groups [[threadgroups_per_grid]], uint3 dispatched [[dispatch_threads_per_threadgroup]],
                       uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]], uint width [[threads_per_simdgroup]],
                       uint simdgroups [[simdgroups_per_threadgroup]], uint dispatched_simdgroups [[dispatch_simdgroups_per_threadgroup]],
                       uint quadgroup [[quadgroup_index_in_threadgroup]], uint in_quadgroup [[thread_index_in_quadgroup]],
                       uint quadgroups [[quadgroups_per_threadgroup]], uint dispatched_quadgroups [[dispatch_quadgroups_per_threadgroup]]) {
    uint at = (in_grid.z * threads.y + in_grid.y) * threads.x + in_grid.x;
    device uint* row = out + 32 * at;
    put(row, in_grid);
    put(row, in_group);
    put(row, group);
    put(row, size);
    put(row, threads);
    put(row, groups);
    put(row, dispatched);
    put(row, uint3(index, lane, simdgroup));
    put(row, uint3(width, simdgroups, dispatched_simdgroups));
    put(row, uint3(quadgroup, in_quadgroup, quadgroups));
    row[0] = dispatched_quadgroups;
    row[1] = x[at];
}

// 24 numbers a thread: what threads of a simdgroup, a quadgroup and a threadgroup learn of each other.
kernel void exchange(device const uint* x [[buffer(0)]], device uint* out [[buffer(1)]], uint3 in_grid [[thread_position_in_grid]],
                     uint3 threads [[threads_per_grid]], uint3 size [[threads_per_threadgroup]], uint index [[thread_index_in_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                     uint simdgroups [[simdgroups_per_threadgroup]]) {
    threadgroup uint tile[256], sums[8];
    uint at = (in_grid.z * threads.y + in_grid.y) * threads.x + in_grid.x, count = size.x * size.y * size.z, mine = x[at];
    device uint* row = out + 24 * at;
    uint lanes = simd_sum(1u), quad = lane & 3, quads = quad_sum(1u);
    row[0] = lanes;
    row[1] = simd_sum(mine);
    row[2] = simd_max(mine);
    row[3] = simd_min(mine);
    row[4] = simd_xor(mine);
    row[5] = simd_prefix_inclusive_sum(mine);
    row[6] = simd_prefix_exclusive_sum(mine);
    row[7] = simd_shuffle(mine, (ushort)(lanes - 1 - lane));
    row[8] = simd_broadcast(mine, (ushort)(lanes - 1)) + simd_broadcast_first(mine);
    // Where no such lane exists, what a shuffle gives is undefined.
    uint up = simd_shuffle_up(mine, 1), down = simd_shuffle_down(mine, 1), other = simd_shuffle_xor(mine, 5);
    row[9] = lane > 0 ? up : 0;
    row[10] = lane + 1 < lanes ? down : 0;
    row[11] = (lane ^ 5) < lanes ? other : 0;
    uint filled = simd_shuffle_and_fill_up(mine, 77u, 2), rotated = simd_shuffle_rotate_down(mine, 3);
    row[12] = lane >= 2 ? filled : 0;
    row[13] = lane + 3 < lanes ? rotated : 0;
    row[14] = (uint)(simd_vote::vote_t)simd_ballot((mine & 1) != 0);
    row[15] = (simd_all(lane < lanes) ? 1 : 0) + (simd_any(lane + 1 == lanes) ? 2 : 0) + (simd_is_first() ? 4 : 0);
    row[16] = (uint)(simd_vote::vote_t)simd_active_threads_mask();
    row[17] = quad_sum(mine);
    row[18] = quad_max(mine) - quad_min(mine);
    row[19] = quad_prefix_inclusive_sum(mine) + quad_broadcast(mine, (ushort)(quads - 1));
    uint neighbour = quad_shuffle_xor(mine, 1);
    row[20] = (quad ^ 1) < quads ? neighbour : 0;
    row[21] = (uint)(quad_vote::vote_t)quad_ballot((mine & 1) != 0) + (quad_all(quad < quads) ? 16 : 0) + (quad_any(quad == 3) ? 32 : 0);
    tile[index] = mine;
    if (lane == 0) sums[simdgroup] = row[1];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    row[22] = tile[count - 1 - index];
    uint all = 0;
    for (uint i = 0; i < simdgroups; i++) all += sums[i];
    simdgroup_barrier(mem_flags::mem_none);
    row[23] = all;
}

// Two numbers a thread, whose rounding shows the order of a sum.
kernel void sums(device const float* x [[buffer(0)]], device float* out [[buffer(1)]], uint3 in_grid [[thread_position_in_grid]],
                 uint3 threads [[threads_per_grid]]) {
    uint at = (in_grid.z * threads.y + in_grid.y) * threads.x + in_grid.x;
    out[2 * at] = simd_sum(x[at]);
    out[2 * at + 1] = quad_sum(x[at]) + simd_prefix_inclusive_sum(x[at]);
}

// Neighbours read what was written without a barrier between them.
kernel void races(device uint* out [[buffer(1)]], uint id [[thread_position_in_grid]], uint index [[thread_index_in_threadgroup]],
                  uint count [[threads_per_threadgroup]]) {
    threadgroup uint tile[64];
    tile[index] = id;
    out[id] = tile[(index + 1) % count];
}

// The threads of the last, smaller threadgroup that are first in it leave before the barrier.
kernel void diverges(device uint* out [[buffer(1)]], uint id [[thread_position_in_grid]], uint threads [[threads_per_grid]]) {
    if (id + 3 == threads) return;
    threadgroup_barrier(mem_flags::mem_device);
    out[id] = id;
}
