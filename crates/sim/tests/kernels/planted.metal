// Kernels with one bug each (and some with none). The line that must be reported carries `expect:` and the finding's kind; a comment before a kernel
// gives its launch: threadgroups x threads, the value of `n`, and whether it is compiled without checks.
//
// `a` holds 256 numbers, `o` as many; `fresh` is a buffer that was not written, `out` an output of 256 numbers that must be written.
#include <metal_stdlib>
using namespace metal;

// launch: 1 x 256
kernel void reads_one_too_far(device const float* a, device float* o, uint i [[thread_position_in_grid]]) {
    o[i] = a[i + 1]; // expect: out-of-bounds-read
}

// launch: 2 x 256, n = 256
kernel void writes_one_too_far(device float* o, constant uint& n, uint i [[thread_position_in_grid]]) {
    if (i <= n)
        o[i] = 1; // expect: out-of-bounds-write
}

// launch: 1 x 64
kernel void reads_far_before(device const float* a, device float* o, uint i [[thread_position_in_grid]]) {
    int j = int(i) - 40000;
    o[i] = a[j]; // expect: out-of-bounds-read
}

// launch: 1 x 128
kernel void reads_vectors_too_far(device const float4* a, device float* o, uint i [[thread_position_in_grid]]) {
    float4 v = a[i]; // expect: out-of-bounds-read
    o[i] = v.x + v.w;
}

// launch: 1 x 32
kernel void reads_beyond_given_threadgroup_memory(device float* o, threadgroup float* s, uint t [[thread_position_in_threadgroup]]) {
    s[t] = t;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    o[t] = s[63 - t]; // expect: out-of-bounds-read
}

// launch: 1 x 64
kernel void writes_beyond_a_threadgroup_array(device float* o, uint t [[thread_position_in_threadgroup]]) {
    threadgroup float s[32];
    s[t] = t; // expect: array-bounds
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t < 32) o[t] = s[t];
}

// launch: 1 x 64
kernel void writes_beyond_a_threadgroup_array_by_pointer(device float* o, uint t [[thread_position_in_threadgroup]]) {
    threadgroup float s[32];
    threadgroup float* p = s;
    p[t] = t; // expect: out-of-bounds-write
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t < 32) o[t] = s[t];
}

// launch: 1 x 64, n = 4
kernel void writes_beyond_a_private_array(device float* o, constant uint& n, uint t [[thread_position_in_threadgroup]]) {
    float r[4] = {0};
    for (uint i = 0; i <= n; i++)
        r[i] = t; // expect: array-bounds
    o[t] = r[0] + r[3];
}

// launch: 1 x 64, n = 4
static void fill(thread float* p, uint n, float value) {
    for (uint i = 0; i <= n; i++)
        p[i] = value; // expect: array-bounds
}
kernel void writes_beyond_a_private_array_by_pointer(device float* o, constant uint& n, uint t [[thread_position_in_threadgroup]]) {
    float r[4] = {0};
    fill(r, n, t);
    o[t] = r[0] + r[3];
}

// Loops whose bounds the compiler knows, so that it unrolls them and finds out itself what lies outside.
// launch: 1 x 64
struct Tile {
    uint lane;
    float slots[4][8];

    void clear() {
        for (uint i = 0; i <= 32; i++)
            slots[i / 8][i % 8] = lane; // expect: array-bounds
    }
};
kernel void clears_beyond_the_last_member(device float* o, uint t [[thread_position_in_threadgroup]]) {
    Tile tile;
    tile.lane = t;
    tile.clear();
    o[t] = tile.slots[0][0] + tile.slots[3][7];
}

// launch: 1 x 64
static void halve(thread float* values) {
    for (uint n = 4; n > 0; n /= 2) {
        for (uint i = 0; i <= n; i++)
            values[i] += values[n + i]; // expect: array-bounds
    }
}
kernel void reads_beyond_a_private_array_of_known_size(device float* o, uint t [[thread_position_in_threadgroup]]) {
    float values[8];
    for (uint i = 0; i < 8; i++)
        values[i] = o[(t + i) % 256];
    halve(values);
    o[t] = values[0];
}

// launch: 1 x 64
static void load(device const float* from, thread float (&row)[4]) {
    for (uint i = 0; i < 4; i++)
        row[i] = from[i]; // expect: array-bounds
}
kernel void passes_a_row_that_is_none(device const float* a, device float* o, uint t [[thread_position_in_threadgroup]]) {
    float rows[3][4];
    for (uint r = 0; r <= 3; r++)
        load(a + t + r, rows[r]); // expect: array-bounds
    o[t] = rows[0][0] + rows[2][3];
}

// launch: 1 x 64
kernel void copies_beyond_a_private_array(device const float4* a, device float* o, uint t [[thread_position_in_threadgroup]]) {
    float4 kept[2];
    thread float4* to = kept;
    for (uint i = 0; i <= 2; i++)
        to[i] = a[t / 8 + i]; // expect: array-bounds
    o[t] = kept[0].x + kept[1].w;
}

// launch: 1 x 64
kernel void reads_before_a_private_array(device const float* a, device float* o, uint t [[thread_position_in_threadgroup]]) {
    float kept[4] = {a[t], a[t + 1], a[t + 2], a[t + 3]};
    thread const float* last = kept + 3;
    float sum = 0;
    for (int i = 0; i <= 4; i++)
        sum += *(last - i); // expect: array-bounds
    o[t] = sum;
}

// launch: 1 x 32
kernel void reads_vectors_misaligned(device const float* a, device float* o, uint i [[thread_position_in_grid]]) {
    float4 v = *(device const float4*)(a + i); // expect: misaligned-access
    o[i] = v.x + v.y + v.z + v.w;
}

// launch: 1 x 64
kernel void lacks_a_barrier(device const float* a, device float* o, uint t [[thread_position_in_threadgroup]]) {
    threadgroup float s[64];
    s[t] = a[t]; // expect: data-race, where the reader ran first
    o[t] = s[t ^ 32]; // expect: data-race | uninitialised-read
}

// The tile is overwritten while others still read it.
// launch: 1 x 64
kernel void lacks_the_second_barrier(device const float* a, device float* o, uint t [[thread_position_in_threadgroup]]) {
    threadgroup float s[64];
    float sum = 0;
    for (int k = 0; k < 4; k++) {
        s[t] = a[k * 64 + t]; // expect: data-race
        threadgroup_barrier(mem_flags::mem_threadgroup);
        sum += s[(t + 33) & 63]; // expect: data-race, where the writer ran first
    }
    o[t] = sum;
}

// launch: 1 x 64
kernel void orders_threadgroup_memory_alone(device float* a, device float* o, uint t [[thread_position_in_threadgroup]]) {
    a[t] = t;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    o[t] = a[63 - t]; // expect: data-race
}

// launch: 1 x 64
kernel void orders_device_memory_alone(device float* o, uint t [[thread_position_in_threadgroup]]) {
    threadgroup float s[64];
    s[t] = t;
    threadgroup_barrier(mem_flags::mem_device);
    o[t] = s[63 - t]; // expect: data-race
}

// launch: 1 x 64
kernel void orders_nothing(device float* o, uint t [[thread_position_in_threadgroup]]) {
    threadgroup float s[64];
    s[t] = t;
    threadgroup_barrier(mem_flags::mem_none);
    o[t] = s[63 - t]; // expect: data-race
}

// launch: 1 x 32
kernel void relies_on_lockstep(device float* o, uint t [[thread_position_in_threadgroup]]) {
    threadgroup float s[32];
    s[t] = t;
    simdgroup_barrier(mem_flags::mem_none);
    o[t] = s[31 - t]; // expect: data-race
}

// launch: 4 x 32
kernel void adds_across_threadgroups(device float* o, uint t [[thread_position_in_threadgroup]]) {
    if (t == 0)
        o[0] += 1.0f; // expect: data-race
}

// launch: 4 x 64
kernel void writes_neighbouring_bytes(device uchar* o, uint i [[thread_position_in_grid]]) {
    o[i] = uchar(i);
}

// launch: 1 x 64
kernel void has_a_barrier_for_some(device float* o, uint t [[thread_position_in_threadgroup]]) {
    if (t < 48)
        threadgroup_barrier(mem_flags::mem_threadgroup); // expect: divergent-barrier
    o[t] = t;
}

// launch: 1 x 64, n = 4
kernel void returns_before_a_barrier(device float* o, constant uint& n, uint t [[thread_position_in_threadgroup]]) {
    if (t >= n) return;
    threadgroup_barrier(mem_flags::mem_threadgroup); // expect: divergent-barrier
    o[t] = t;
}

// launch: 1 x 64
kernel void has_two_barriers_at_once(device float* o, uint t [[thread_position_in_threadgroup]]) {
    if (t < 32) {
        threadgroup_barrier(mem_flags::mem_threadgroup); // expect: divergent-barrier
        o[t] = t;
    } else {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        o[t] = 0;
    }
}

// launch: 1 x 32
kernel void has_a_simdgroup_barrier_for_some(device float* o, uint t [[thread_position_in_threadgroup]]) {
    if (t < 20)
        simdgroup_barrier(mem_flags::mem_threadgroup); // expect: divergent-barrier
    o[t] = t;
}

// launch: 1 x 32
kernel void sums_over_some_lanes(device float* o, uint t [[thread_position_in_threadgroup]]) {
    float v = t;
    if (t < 20)
        v = simd_sum(v); // expect: divergent-simd
    o[t] = v;
}

// launch: 1 x 32
kernel void sums_over_parts_of_quads(device float* o, uint t [[thread_position_in_threadgroup]]) {
    float v = t;
    if (t % 4 < 3)
        v = quad_sum(v); // expect: divergent-simd
    o[t] = v;
}

// launch: 1 x 40
kernel void multiplies_matrices_with_too_few_lanes(device const float* a, device float* o) {
    simdgroup_float8x8 m;
    simdgroup_load(m, a, 8); // expect: divergent-simd
    simdgroup_store(m, o, 8);
}

// launch: 1 x 64
kernel void reads_unwritten_threadgroup_memory(device float* o, uint t [[thread_position_in_threadgroup]]) {
    threadgroup float s[64];
    if (t < 60) s[t] = t;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    o[t] = s[t]; // expect: uninitialised-read
}

// launch: 1 x 64
kernel void reads_unwritten_device_memory(device const float* fresh, device float* o, uint i [[thread_position_in_grid]]) {
    o[i] = fresh[i]; // expect: uninitialised-read
}

// launch: 1 x 64
kernel void uses_too_much_threadgroup_memory(device float* o, uint t [[thread_position_in_threadgroup]]) { // expect: threadgroup-memory
    threadgroup float s[64 * 140];
    s[t] = t;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    o[t] = s[t];
}

// launch: 1 x 64
kernel void writes_constant_memory(constant float* a, device float* o, uint t [[thread_position_in_threadgroup]]) {
    ((device float*)(ulong)a)[t] = 1; // expect: write-to-constant
    o[t] = a[t];
}

// launch: 1 x 64
kernel void writes_read_only_memory(device const float* a, device float* o, uint t [[thread_position_in_threadgroup]]) {
    const_cast<device float*>(a)[t] = 1; // expect: write-to-constant
    o[t] = 0;
}

// launch: 4 x 64, n = 255
kernel void leaves_the_last_unwritten(device float* out, constant uint& n, uint i [[thread_position_in_grid]]) { // expect: unwritten-output
    if (i < n) out[i] = i;
}

// launch: 4 x 64
kernel void writes_all(device float* out, uint i [[thread_position_in_grid]]) {
    out[i] = i;
}

// launch: 1 x 64, n = 0
kernel void divides_by_zero(device int* o, constant uint& n, uint i [[thread_position_in_grid]]) {
    o[i] = int(i) / int(n); // expect: integer-division
}

// launch: 1 x 64, n = 0
kernel void takes_a_remainder_by_zero(device uint* o, constant uint& n, uint i [[thread_position_in_grid]]) {
    o[i] = i % n; // expect: integer-division
}

// launch: 1 x 64, n = 32
kernel void shifts_too_far(device uint* o, constant uint& n, uint i [[thread_position_in_grid]]) {
    o[i] = i << n; // expect: shift-overflow
}

// launch: 1 x 64
kernel void follows_a_wild_pointer(device float* o, uint i [[thread_position_in_grid]]) {
    device float* p = (device float*)(0x123456780000ul + 4 * i);
    o[i] = *p; // expect: invalid-pointer
}

// launch: 1 x 64
kernel void follows_a_null_pointer(device float* o, uint i [[thread_position_in_grid]]) {
    device float* p = (device float*)(ulong)(4 * i);
    *p = o[i]; // expect: invalid-pointer
}

// launch: 1 x 64, n = 1
kernel void never_ends(device uint* o, constant uint& n, uint i [[thread_position_in_grid]]) {
    uint x = i;
    while (n != 0) x = x * 3 + n; // expect: time-limit
    o[i] = x;
}

// launch: 1 x 64, n = 1
kernel void meets_for_ever(device uint* o, constant uint& n, uint i [[thread_position_in_grid]]) {
    uint x = i;
    while (n != 0) { // expect: time-limit
        threadgroup_barrier(mem_flags::mem_none); // expect: time-limit
    }
    o[i] = x;
}

static uint depth(uint n, device uint* o) { // expect: stack-overflow
    uint volatile kept[8];
    kept[n & 7] = n; // expect: stack-overflow
    return n == 0 ? 0 : kept[n & 7] + depth(n - 1, o) + o[n & 15]; // expect: stack-overflow
}

// launch: 1 x 64, n = 100000
kernel void recurses_too_deep(device uint* o, constant uint& n, uint i [[thread_position_in_grid]]) {
    o[i] = depth(n, o);
}

// launch: 1 x 64, unchecked
kernel void faults_without_checks(device float* o, uint i [[thread_position_in_grid]]) {
    o[i + 0x1000000] = 1; // expect: fault
}

// launch: 1 x 64, n = 0, unchecked
kernel void divides_without_checks(device int* o, constant uint& n, uint i [[thread_position_in_grid]]) {
    o[i] = int(i) / int(n); // expect: integer-division
}

// launch: 1 x 64, n = 100000, unchecked
kernel void recurses_without_checks(device uint* o, constant uint& n, uint i [[thread_position_in_grid]]) {
    o[i] = depth(n, o);
}

// launch: 1 x 64, n = 1, unchecked
kernel void never_ends_without_checks(device uint* o, constant uint& n, uint i [[thread_position_in_grid]]) {
    uint x = i;
    while (n != 0) x = x * 3 + n; // expect: time-limit
    o[i] = x;
}
