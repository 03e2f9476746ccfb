#include <metal_stdlib>
using namespace metal;

struct Row {
    uint columns;
    float epsilon;
};

kernel void add(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]], device float* sum [[buffer(2)]], constant uint& n [[buffer(3)]],
                uint i [[thread_position_in_grid]]) {
    if (i >= n) return;
    sum[i] = a[i] + b[i];
}

// Reversal of each threadgroup's part, through threadgroup memory.
kernel void reverse(device const int* x [[buffer(0)]], device int* y [[buffer(1)]], threadgroup int* tile [[threadgroup(0)]],
                    uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
    tile[t] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = tile[n - 1 - t];
}

kernel void row_sum(device const float* x [[buffer(0)]], device float* sums [[buffer(1)]], constant Row& row [[buffer(2)]],
                    uint r [[threadgroup_position_in_grid]], uint t [[thread_position_in_threadgroup]], uint n [[threads_per_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
    threadgroup float partial[32];
    float sum = 0;
    for (uint c = t; c < row.columns; c += n) sum += x[r * row.columns + c];
    sum = simd_sum(sum);
    if (lane == 0) partial[simdgroup] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simdgroup == 0) {
        float total = simd_sum(lane < (n + 31) / 32 ? partial[lane] : 0.0f);
        if (lane == 0) sums[r] = total + row.epsilon;
    }
}

constant bool doubled [[function_constant(0)]];
constant int offset [[function_constant(1)]];

kernel void shift_by(device int* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    x[i] = x[i] * (doubled ? 2 : 1) + offset;
}

kernel void count(device const uchar* x [[buffer(0)]], device atomic_uint* bins [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    atomic_fetch_add_explicit(&bins[x[i] & 15], 1u, memory_order_relaxed);
}

kernel void positions(device uint* out [[buffer(0)]], uint3 at [[thread_position_in_grid]], uint3 size [[threads_per_grid]],
                      uint3 local [[thread_position_in_threadgroup]], uint3 group [[threadgroup_position_in_grid]],
                      uint3 threads [[threads_per_threadgroup]]) {
    bool right = all(group * uint3(4, 3, 2) + local == at) && all(local < threads);
    out[(at.z * size.y + at.y) * size.x + at.x] = right ? at.x + 100 * at.y + 10000 * at.z : 0;
}

template <typename T>
kernel void scale(device T* x [[buffer(0)]], constant float& by [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    x[i] = T(float(x[i]) * by);
}
template [[host_name("scale_f16")]] [[kernel]] decltype(scale<half>) scale<half>;
template [[host_name("scale_bf16")]] [[kernel]] decltype(scale<bfloat>) scale<bfloat>;

kernel void matmul8(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]], device float* c [[buffer(2)]]) {
    simdgroup_float8x8 x, y, z;
    simdgroup_load(x, a, 8);
    simdgroup_load(y, b, 8);
    simdgroup_multiply(z, x, y);
    simdgroup_store(z, c, 8);
}

constant bool biased [[function_constant(2)]];

kernel void add_bias(device float* x [[buffer(0)]], device const float* bias [[buffer(1), function_constant(biased)]], uint i [[thread_position_in_grid]]) {
    if (biased) x[i] += bias[i];
}
