// Names of Rust's scalar types, for parameter blocks; conversions; loads and stores of eight neighbouring elements.
#include <metal_stdlib>
using namespace metal;

typedef uint u32;
typedef int i32;
typedef ulong u64;
typedef long i64;
typedef float f32;

constant constexpr uint MAX_RANK = 8;

// Exact.
template <typename T>
inline float widen(T x) {
    return float(x);
}

// Rounded to nearest even; NaN stays NaN.
template <typename T>
inline T narrow(float x) {
    return T(x);
}

// In integers, because not every device's own conversion keeps denormals.
template <>
inline bfloat narrow<bfloat>(float x) {
    const uint bits = as_type<uint>(x);
    const uint rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return as_type<bfloat>(ushort(isnan(x) ? (bits >> 16) | 0x40u : rounded));
}

template <>
inline float widen<bfloat>(bfloat x) {
    return as_type<float>(uint(as_type<ushort>(x)) << 16);
}

// Elements a thread takes at once: 16 bytes or a multiple.
constant constexpr uint SLOTS = 8;

// Whether SLOTS elements at `p` may be moved as 16-byte words.
template <typename T>
inline bool is_wide(device const T* p) {
    return (reinterpret_cast<ulong>(p) & 15) == 0;
}

inline void load_wide(device const float* p, thread float* slots) {
    const float4 low = reinterpret_cast<device const float4*>(p)[0];
    const float4 high = reinterpret_cast<device const float4*>(p)[1];
    for (uint i = 0; i < 4; ++i) {
        slots[i] = low[i];
        slots[4 + i] = high[i];
    }
}

template <typename T>
inline void load_wide(device const T* p, thread float* slots) {
    const uint4 words = *reinterpret_cast<device const uint4*>(p);
    for (uint i = 0; i < 4; ++i) {
        slots[2 * i] = widen(as_type<T>(ushort(words[i])));
        slots[2 * i + 1] = widen(as_type<T>(ushort(words[i] >> 16)));
    }
}

inline void store_wide(device float* p, thread const float* slots) {
    reinterpret_cast<device float4*>(p)[0] = float4(slots[0], slots[1], slots[2], slots[3]);
    reinterpret_cast<device float4*>(p)[1] = float4(slots[4], slots[5], slots[6], slots[7]);
}

template <typename T>
inline void store_wide(device T* p, thread const float* slots) {
    uint4 words;
    for (uint i = 0; i < 4; ++i) {
        const uint low = as_type<ushort>(narrow<T>(slots[2 * i]));
        words[i] = low | uint(as_type<ushort>(narrow<T>(slots[2 * i + 1]))) << 16;
    }
    *reinterpret_cast<device uint4*>(p) = words;
}

// Tells that element `number` of an input cannot be accepted.
inline void refuse(device atomic_uint* refusal, ulong number) {
    atomic_fetch_max_explicit(refusal, ~uint(min(number, 0xfffffffeul)), memory_order_relaxed);
}
