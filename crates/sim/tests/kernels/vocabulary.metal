// What Metal's standard library and language promise, checked by kernels that know the answers: each failed check leaves its line.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
#include <simd/simd.h>

using namespace metal;

struct Failures {
  atomic_uint count;
  uint lines[63];
};
#define CHECK(condition)                                                              \
  if (!(condition)) {                                                                 \
    uint failed = atomic_fetch_add_explicit(&out->count, 1u, memory_order_relaxed);   \
    if (failed < 63) out->lines[failed] = __LINE__;                                   \
  }

constant float table[4] = {1.0, 2.0f, 4.0, 8.0};
constant constexpr uint kSize = 4;
static constant uint2 pairs[] = {{1, 2}, uint2(3, 4)};
enum class Mode : uint { first = 1, second = kSize };
enum Plain { zero, one, five = 5, six };
static_assert(sizeof(float3) == 16 && sizeof(packed_float3) == 12 && alignof(float4) == 16 && sizeof(half3) == 8, "layout");
static_assert(sizeof(packed_half4) == 8 && alignof(packed_half4) == 2 && sizeof(bool4) == 4 && sizeof(float4x4) == 64, "layout");
static_assert(is_same_v<make_unsigned_t<int>, uint> && is_same<remove_cv_t<const volatile int>, int>::value, "traits");

namespace shapes {
struct Box {
  float width, height;
  float area() const { return width * height; }
  float area() const constant { return width * height; }
  Box operator+(Box other) const { return {width + other.width, height + other.height}; }
  static constexpr int corners = 4;
};
template <typename T, int N> struct Row {
  T items[N];
  thread T& at(int i) { return items[i]; }
  const thread T& at(int i) const { return items[i]; }
  template <typename F> T fold(F f, T start) const {
    for (int i = 0; i < N; i++) start = f(start, items[i]);
    return start;
  }
};
} // namespace shapes

template <typename T> T twice(T x) { return x + x; }
template <> float twice<float>(float x) { return 2 * x; }
template <typename T> void exchange(thread T& a, thread T& b) {
  T kept = a;
  a = b;
  b = kept;
}
template <uint N> uint times(uint x) { return N * x; }
template <typename T, typename... R> T total(T first, R... rest) {
  if constexpr (sizeof...(rest) == 0)
    return first;
  else
    return first + total(rest...);
}
float first_of(const device float* p) { return p[0]; }
float first_of(constant float* p) { return -p[0]; }
float first_of(const threadgroup float* p) { return 100 + p[0]; }
float first_of(thread float* p) { return 200 + p[0]; }

kernel void vectors(device Failures* out [[buffer(0)]]) {
  float4 a = float4(1, 2, 3, 4);
  CHECK(all(a.xy == float2(1, 2)) && all(a.wzyx == float4(4, 3, 2, 1)) && a.a == 4 && all(a.rgb == float3(1, 2, 3)));
  a.zx = float2(9, 8);
  CHECK(all(a == float4(8, 2, 9, 4)));
  a.xy += 1;
  a.w *= 2;
  CHECK(all(a == float4(9, 3, 9, 8)));
  a[1] = 7;
  CHECK(a.y == 7 && a[3] == 8);
  float3 b = float3(float2(1, 2), 3), c = float3(1, b.zy);
  CHECK(all(c == float3(1, 3, 2)) && all(float4(b, 4) == float4(1, float3(2, 3, 4))));
  uint4 d = {1, 2, 3};
  CHECK(all(d == uint4(1, 2, 3, 0)));
  int2 e = int2(-1.7f, 2.9f), f(5);
  CHECK(all(e == int2(-1, 2)) && all(f == 5) && all((e << 1) == int2(-2, 4)) && all(-e == int2(1, -2)) && all(~e == int2(0, -3)));
  CHECK(all(2 * b == float3(2, 4, 6)) && all(b / 2 == float3(0.5, 1, 1.5)) && all((b > 1.5f) == bool3(false, true, true)));
  CHECK(any(b == 2) && !all(b == 2) && all(!(b == 5)) && all(select(b, -b, b > 2) == float3(1, 2, -3)));
  half4 h = half4(1.5h, 2, 3, 4);
  CHECK(all(float4(h) == float4(1.5, 2, 3, 4)) && all(h.xw * 2.0h == half2(3, 8)));
  packed_float3 p = b;
  p.y = 5;
  float3 q = p;
  CHECK(q.y == 5 && p[2] == 3 && all(float3(p) + p == 2 * q) && all(p * 2.0f == float3(2, 10, 6)));
  packed_uchar4 u(1, 2, 3, 250);
  CHECK(u.w + 10 == 260 && all(uchar4(u) == uchar4(1, 2, 3, 250)));
  vec<float, 2> g = vec<float, 2>(a.x);
  CHECK(g.y == 9 && vec_elements<float3>::value == 3 && is_vector_v<half2> && !is_vector_v<half>);
  CHECK(as_type<uint>(1.0f) == 0x3f800000u && all(as_type<ushort2>(0x00020001u) == ushort2(1, 2)) && as_type<float>(0x40000000) == 2);
  CHECK(as_type<ushort>(bfloat(1.0f)) == 0x3f80 && float(bfloat(1.00390625f)) == 1.0f && float(1.5bf) == 1.5f);
  bool2 t = bool2(true, false);
  CHECK(t.x && !t.y && all((t || bool2(false, true)) == true) && uchar(t.x) == 1);
  float4 s = float4(0);
  s.x++;
  ++s.y;
  s.zw = s.xy + s.yx;
  CHECK(all(s == float4(1, 1, 2, 2)));
  const float4 initialised{1.0f, 2.0f, 3.0f, 4.0f};
  CHECK(dot(initialised, 1.0f - initialised) == -20 && all(min(initialised, 2) == float4(1, 2, 2, 2)));
}

kernel void matrices(device Failures* out [[buffer(0)]]) {
  float2x2 a = float2x2(float2(1, 2), float2(3, 4)), b(1, 0, 0, 1);
  CHECK(all(a * float2(1, 1) == float2(4, 6)) && all(float2(1, 1) * a == float2(3, 7)));
  CHECK(all((a * b)[1] == a[1]) && all(transpose(a)[0] == float2(1, 3)) && determinant(a) == -2);
  float4x4 identity(1.0f);
  CHECK(identity[2][2] == 1 && identity[2].x == 0 && determinant(identity * 2.0f) == 16);
  float3x3 c(float3(2, 0, 0), float3(0, 3, 0), float3(0, 0, 4));
  CHECK(determinant(c) == 24 && all((c + c)[1] == float3(0, 6, 0)));
  float4x2 wide;
  for (int i = 0; i < 4; i++) wide[i] = float2(i, 2 * i);
  CHECK(all(wide * float4(1, 1, 1, 1) == float2(6, 12)));
}

kernel void mathematics(device Failures* out [[buffer(0)]], constant float& x [[buffer(1)]]) {
  CHECK(abs(exp(x) - 2.7182817f) < 1e-6f && precise::log(x) == 0 && fast::sqrt(4 * x) == 2 && rsqrt(16 * x) == 0.25f);
  // In a namespace they are functions of float, as compiled libraries show.
  half narrow = x;
  CHECK(sizeof(exp(narrow)) == 2 && sizeof(precise::exp(narrow)) == 4 && sizeof(fast::atan2(narrow, narrow)) == 4 && 1 + precise::exp(narrow) == 1 + exp(x));
  CHECK(abs(sin(M_PI_F / 6 * x) - 0.5f) < 1e-6f && abs(cospi(x) + 1) < 1e-6f && abs(tanh(x) - 0.7615942f) < 1e-6f);
  CHECK(exp2(3 * x) == 8 && exp10(2 * x) == 100 && log2(8 * x) == 3 && log10(1000 * x) == 3 && pow(2 * x, 10) == 1024 && powr(9 * x, 0.5f) == 3);
  CHECK(floor(-1.5f * x) == -2 && ceil(1.2f * x) == 2 && trunc(-1.7f * x) == -1 && round(2.5f * x) == 3 && rint(2.5f * x) == 2 && fract(1.25f * x) == 0.25f);
  CHECK(fmod(5.5f * x, 2) == 1.5f && copysign(3 * x, -1.0f) == -3 && fabs(-x) == 1 && fdim(3 * x, 5) == 0 && sign(-7 * x) == -1 && sign(0.0f) == 0);
  CHECK(fma(2 * x, 3, 4) == 10 && fma(2.0h, 3.0h, 4.0h) == 10 && all(fma(float2(1, 2), float2(3), float2(1)) == float2(4, 7)));
  CHECK(min(1.0f * x, NAN) == 1 && max(NAN, 2 * x) == 2 && fmin(NAN, x) == 1 && isnan(NAN * x) && isinf(INFINITY * x) && !isfinite(-INFINITY) && signbit(-0.0f));
  CHECK(clamp(5 * x, 0, 3) == 3 && clamp(-1, 0, 3) == 0 && saturate(1.5f * x) == 1 && mix(0.0f, 10.0f, 0.25f * x) == 2.5f && step(2 * x, 1) == 0 && smoothstep(0.0f, 1.0f, 0.5f * x) == 0.5f);
  CHECK(all(clamp(float3(-1, 0.5, 2), 0.0f, 1.0f) == float3(0, 0.5, 1)) && all(mix(float2(0, 1), float2(1, 3), 0.5f) == float2(0.5, 2)));
  CHECK(min3(3, 1, 2) == 1 && max3(1.0f, 3.0f, 2.0f) == 3 && median3(3, 1, 2) == 2 && select(1, 2, true) == 2);
  int exponent;
  float cosine, whole;
  CHECK(frexp(12 * x, exponent) == 0.75f && exponent == 4 && ldexp(0.75f * x, 4) == 12 && ilogb(9 * x) == 3);
  CHECK(sincos(0 * x, cosine) == 0 && cosine == 1 && modf(-2.25f * x, whole) == -0.25f && whole == -2);
  half h = 2.0h * half(x);
  CHECK(sqrt(h * h) == 2.0h && exp2(h) == 4.0h && max(h, 3.0h) == 3.0h && isnan(half(NAN)) && (is_same_v<decltype(exp(h)), half>));
  CHECK(abs(-5) == 5 && abs(float2(-1, 2)).x == 1 && 7 / 2 * 1.0 == 3.0 && (is_same_v<decltype(1.0), float>));
  CHECK(length(float3(2, 3, 6)) == 7 && all(cross(float3(1, 0, 0), float3(0, 1, 0)) == float3(0, 0, 1)) && distance(float2(1, 1), float2(4, 5)) == 5);
  CHECK(all(normalize(float2(0, 5)) == float2(0, 1)) && length_squared(float2(3, 4)) == 25 && all(reflect(float2(1, -1), float2(0, 1)) == float2(1, 1)));
  CHECK(numeric_limits<float>::max() == FLT_MAX && numeric_limits<half>::infinity() > 65504.0h && numeric_limits<int>::lowest() == INT_MIN && numeric_limits<uchar>::max() == 255);
  CHECK(nextafter(1.0f * x, 2) == 1.00000012f && divide(1.0f * x, 4) == 0.25f && atan2(x, 1) == atan(x));
  CHECK(all(sin(float3(0)) == 0) && all(exp2(half2(1, 2)) == half2(2, 4)) && all(isnan(float2(NAN, 1)) == bool2(true, false)));
}

kernel void integers(device Failures* out [[buffer(0)]], constant uint& n [[buffer(1)]]) {
  CHECK(popcount(0xF0F0u * n) == 8 && clz(n) == 31 && ctz(8 * n) == 3 && clz(uchar(0)) == 8 && ctz(0u) == 32 && popcount(-1) == 32);
  CHECK(reverse_bits(n) == 0x80000000u && reverse_bits(uchar(1)) == 128 && rotate(0x80000001u, 1u) == 3 && rotate(ushort(1), ushort(15)) == 0x8000);
  CHECK(extract_bits(0xABCDu * n, 4, 8) == 0xBC && extract_bits(-1, 3, 4) == -1 && extract_bits(0x70, 4, 4) == 7 && insert_bits(0u, 5u, 8, 4) == 0x500 && insert_bits(~0u, 0u, 4, 8) == 0xFFFFF00Fu);
  CHECK(mulhi(0x80000000u * n, 4u) == 2 && mulhi(-1, 2) == -1 && mulhi(1ul << 63, 6ul) == 3 && mad24(3, 4, 5) == 17 && mul24(7, 8) == 56 && madhi(1u << 31, 2u, 1u) == 2);
  CHECK(absdiff(3, -4) == 7 && hadd(7u, 4u) == 5 && rhadd(7u, 4u) == 6 && addsat(uchar(250), uchar(10)) == 255 && subsat(3u, 5u) == 0 && subsat(INT_MIN, 1) == INT_MIN && madsat(100000, 100000, 1) == INT_MAX);
  CHECK(all(popcount(uint2(3, 7)) == uint2(2, 3)) && all(abs(int2(-3, 4)) == int2(3, 4)) && all(max(short2(1, 5), short2(3, 2)) == short2(3, 5)));
  CHECK((int(n) - 2) / 2 == 0 && (-7 >> 1) == -4 && (1u << 31) >> 31 == 1 && uchar(300 * n) == 44 && char(200 * n) == -56);
  CHECK(pack_float_to_unorm4x8(float4(0, 0.5, 1, 2)) == 0xFFFF8000u && all(unpack_unorm4x8_to_float(0xFF0000FFu) == float4(1, 0, 0, 1)) && unpack_snorm2x16_to_float(0x80017FFFu).y == -1);
  CHECK(uint(Mode::second) == 4 && six == 6 && static_cast<Mode>(1) == Mode::first && long(n) << 40 == 1099511627776l);
}

kernel void language(device Failures* out [[buffer(0)]], device float* data [[buffer(1)]], constant shapes::Box& box [[buffer(2)]]) {
  threadgroup float shared[4], other;
  threadgroup shapes::Row<int, 3> row;
  float own[3] = {5, 6, 7};
  shared[0] = 1;
  other = 2;
  for (int i = 0; i < 3; i++) row.items[i] = i + 1;
  simd_float2 host = vector_float2(1, 2);
  CHECK(host.y == 2 && sizeof(simd::float3) == 16);
  CHECK(first_of(data) == 3 && first_of(table) == -1 && first_of(shared) == 101 && first_of(own) == 205 && shared[0] + other == 3 && row.items[2] == 3);
  CHECK(table[3] == 8 && pairs[1].y == 4 && box.area() == 6);
  shapes::Box sum = box + shapes::Box{1, 1};
  CHECK(sum.area() == 12 && shapes::Box::corners == 4);
  shapes::Row<float, 3> r = {{1, 2, 3}};
  r.at(1) = 10;
  float scale = 2;
  auto weighted = [&](float a, float b) { return a + scale * b; };
  CHECK(r.fold(weighted, 1.0f) == 29 && [](int a) { return a + 1; }(4) == 5);
  float a = 1, b = 2;
  exchange(a, b);
  exchange(own[0], own[2]);
  CHECK(a == 2 && b == 1 && own[0] == 7 && twice(3) == 6 && twice(1.5f) == 3 && total(1, 2, 3, 4) == 10);
  const bool flip = data[0] > 0;
  CHECK((flip ? data[0] : own[0]) == 3 && (flip ? table[1] : a) == 2 && (flip ? float2(1, 2).y : b) == 2);
  // Conditions as template arguments, and beside comparisons.
  const uint few = 3, many = 4;
  CHECK(times<sizeof(float) == 4 ? 5 : 6>(few) == 15 && times<(true ? 5 : 6)>(few) == 15 && (few < many ? few : many > (few)) == 3);
  device float* end = flip ? data + 1 : data;
  CHECK(end - data == 1);
  array<float, 3> list = {1, 2, 3};
  float sum_of_list = 0;
  for (auto item : list) sum_of_list += item;
  CHECK(sum_of_list == 6 && list.size() == 3);
  switch (Mode(uint(box.width))) {
    case Mode::first: CHECK(false); break;
    default: break;
  }
  union { float f; uint u; } bits;
  bits.f = 1;
  CHECK(bits.u == 0x3f800000u);
  device atomic_int* counter = (device atomic_int*)(data + 1);
  atomic_store_explicit(counter, 5, memory_order_relaxed);
  int expected = 5;
  CHECK(atomic_fetch_max_explicit(counter, 9, memory_order_relaxed) == 5 && atomic_exchange_explicit(counter, 5, memory_order_relaxed) == 9);
  CHECK(atomic_compare_exchange_weak_explicit(counter, &expected, 6, memory_order_relaxed, memory_order_relaxed) && atomic_load_explicit(counter, memory_order_relaxed) == 6);
  CHECK(atomic_fetch_and_explicit(counter, 3, memory_order_relaxed) == 6 && atomic_fetch_sub_explicit(counter, 1, memory_order_relaxed) == 2);
  device atomic_float* real = (device atomic_float*)(data + 2);
  atomic_store_explicit(real, 1.5f, memory_order_relaxed);
  CHECK(atomic_fetch_add_explicit(real, 2, memory_order_relaxed) == 1.5f && atomic_load_explicit(real, memory_order_relaxed) == 3.5f);
}

kernel void simdgroups(device Failures* out [[buffer(0)]], ushort lane [[thread_index_in_simdgroup]], ushort quad [[thread_index_in_quadgroup]]) {
  int i = lane;
  CHECK(simd_sum(i) == 496 && simd_max(i) == 31 && simd_min(i + 3) == 3 && simd_product(i < 3 ? 2 : 1) == 8);
  CHECK(simd_and(i | 32) == 32 && simd_or(1u << lane) == ~0u && simd_xor(i) == 0 && simd_broadcast(i, 7) == 7 && simd_broadcast_first(i) == 0);
  CHECK(simd_prefix_inclusive_sum(i) == i * (i + 1) / 2 && simd_prefix_exclusive_sum(1) == i && simd_prefix_exclusive_product(1.0f) == 1);
  CHECK(simd_shuffle(i, (lane + 5) % 32) == (i + 5) % 32 && simd_shuffle_xor(i, 9) == (i ^ 9));
  int up = simd_shuffle_up(i, 4), down = simd_shuffle_down(i, 4);
  CHECK((lane < 4 || up == i - 4) && (lane > 27 || down == i + 4));
  CHECK(simd_shuffle_rotate_up(i, 1) == (i + 31) % 32 && simd_shuffle_rotate_down(i, 1) == (i + 1) % 32);
  CHECK(simd_shuffle_and_fill_up(i, 100 + i, 2) == (lane < 2 ? 130 + i : i - 2));
  CHECK(simd_shuffle_and_fill_down(i, 100 + i, 2, 8) == (lane % 8 < 6 ? i + 2 : 94 + i));
  CHECK(simd_all(i >= 0) && simd_any(i == 31) && !simd_all(i < 31) && simd_is_first() == (lane == 0));
  CHECK(simd_vote::vote_t(simd_ballot(lane % 2 == 0)) == 0x55555555ul && uint(simd_vote::vote_t(simd_active_threads_mask())) == ~0u);
  CHECK(quad_sum(i) == 4 * (i / 4 * 4) + 6 && quad_max(i) == i / 4 * 4 + 3 && quad_broadcast(i, 2) == i / 4 * 4 + 2 && quad == lane % 4);
  CHECK(quad_shuffle_xor(i, 1) == (i ^ 1) && quad_all(i >= 0) && quad_any(quad == 3) && quad_prefix_exclusive_sum(1) == quad && ushort(quad_vote::vote_t(quad_ballot(quad == 1))) == 2);
  float4 v = simd_sum(float4(i, 1, 2, 0.5));
  CHECK(all(v == float4(496, 32, 64, 16)));
  half h = simd_sum(half(1));
  bfloat f = simd_max(bfloat(i));
  CHECK(h == 32 && float(f) == 31);
  // Floats are summed in the order of CUDA's trees.
  float x = 1.0f / (3 + i), tree = x, running = x;
  for (ushort mask = 16; mask > 0; mask /= 2) tree += simd_shuffle_xor(tree, mask);
  for (ushort step = 1; step < 32; step *= 2) {
    float other = simd_shuffle_up(running, step);
    running = lane < step ? running : other + running;
  }
  CHECK(simd_sum(x) == tree && simd_prefix_inclusive_sum(x) == running);
  float before = simd_shuffle_up(running, 1);
  CHECK(simd_prefix_exclusive_sum(x) == (lane == 0 ? 0.0f : before));
  // Each operation on narrow numbers rounds.
  bfloat b = bfloat(1.0078125f + i);
  half n = half(1.0009765625f);
  CHECK(lane > 0 || float(b * b - bfloat(1.015625f)) == 0.0f);
  CHECK(lane > 0 || float(n * n - half(1.001953125f)) == 0.0f);
}

kernel void fragments(device Failures* out [[buffer(0)]], device float* data [[buffer(1)]], ushort lane [[thread_index_in_simdgroup]]) {
  threadgroup half tile[64];
  for (ushort i = lane; i < 64; i += 32) tile[i] = half(i % 8 == i / 8 ? 2 : 0);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_matrix<float, 8, 8> a, d = make_filled_simdgroup_matrix<float, 8>(1.0f);
  simdgroup_half8x8 b;
  simdgroup_load(a, data, 8);
  simdgroup_load(b, tile, 8, ulong2(0, 0), true);
  simdgroup_multiply_accumulate(d, a, b, d);
  simdgroup_store(d, data + 64, 8);
  simdgroup_multiply(d, a, simdgroup_float8x8(3.0f));
  d.thread_elements()[0] += 0.5f;
  simdgroup_store(d, data + 128, 8, ulong2(0, 0), true);
  simdgroup_barrier(mem_flags::mem_device);
  for (ushort i = lane; i < 64; i += 32) CHECK(data[64 + i] == 2 * data[i] + 1);
  float own = data[128 + 8 * (lane % 8)];
  CHECK(own == 3 * data[lane % 8] || own == 3 * data[lane % 8] + 0.5f);
}
