// What Apple's compiler takes though it looks as if it broke a rule.
#include <metal_stdlib>
using namespace metal;

struct Pair {
    float x, y;
    Pair() = default;
    Pair(float x, float y) : x(x), y(y) {}
    float sum() const { return x + y; }
    float sum() const device { return x + y; }
};

struct Plain {
    uint4 words;
};

union Bits {
    float number;
    uint bits;
};

// Since Metal 2.4.
static uint factorial(uint n) {
    return n < 2 ? 1 : n * factorial(n - 1);
}

template <typename T>
kernel void scaled(device T* out [[buffer(0)]], constant array<float, 2>& factors [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    const float factor = factors[0];
    out[i] = T(factor) * out[i];
}
template [[host_name("scaled_float")]] [[kernel]] decltype(scaled<float>) scaled<float>;

// One instance of two names.
template <typename T, int N = 1>
kernel void moved(device T* out [[buffer(0)]], device T* from [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    T kept = from[N * i];
    out[i] = kept;
}
template [[host_name("moved_one")]] [[kernel]] decltype(moved<Plain, 1>) moved<Plain, 1>;
template [[host_name("moved_plain")]] [[kernel]] decltype(moved<Plain>) moved<Plain>;

template <typename T, int N>
static vec<T, N> doubled(vec<T, N> v) {
    return v + v;
}

static void swap(threadgroup float values[32], uint i, uint j) {
    const float kept = values[i];
    values[i] = values[j];
    values[j] = kept;
}

kernel void k(
    device Pair* pairs [[buffer(0)]],
    device Plain* plain [[buffer(1)]],
    device float4* vectors [[buffer(2)]],
    constant float4x4& matrix [[buffer(3)]],
    uint3 place [[thread_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float sums[32] = {0};
    threadgroup Pair shared[4];
    const uint i = place.x;
    shared[lane % 4] = pairs[i];
    plain[i] = plain[i + 1];
    Plain copy = plain[i];
    pairs[i] = Pair(pairs[i].sum(), 1);
    vectors[i].xy = float2(half2(1, 2)) + doubled(vectors[i].zw);
    vectors[i] = matrix * float4(vectors[i].yx, max(vectors[i], 0.0f).z, copy.words[1]);
    short2 offset(i % 2, i / 2);
    vectors[i][0] = i > 2 ? vectors[i].w : vectors[0].w + offset.x;
    swap(sums, lane, 31 - lane);
    auto [x, y] = Pair(1, 2);
    Bits same;
    same.number = x + y + factorial(i);
    vectors[i].y = as_type<float>(same.bits);
    if constexpr (sizeof(float) == 4) {
        vectors[i].x += 1.0h * sums[lane] + (float4(vectors[i]) == float4(0)).x;
    }
}
