// Types of numbers and their conversions, in CUDA C++.

typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
typedef float f32;

struct f16 {
    unsigned short bits;
};

struct bf16 {
    unsigned short bits;
};

constexpr float LOG2_E = 1.44269504f;

#define DEVICE __device__ __forceinline__

// Negative infinity: the score of a key that is not attended.
#define NEVER __int_as_float(0xff800000)

DEVICE float widen(float x) { return x; }
DEVICE float widen(bf16 x) { return __uint_as_float(u32(x.bits) << 16); }
DEVICE float widen(f16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}

// Two numbers in a word.
template <typename T>
DEVICE u32 pack(float low, float high);
template <>
DEVICE u32 pack<bf16>(float low, float high) {
    u32 y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}
template <>
DEVICE u32 pack<f16>(float low, float high) {
    u32 y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}

DEVICE void store(float* to, float x) { *to = x; }
template <typename T>
DEVICE void store(T* to, float x) {
    to->bits = (unsigned short)(pack<T>(x, 0.0f));
}

// Of a type that the host names.
DEVICE float load_as(const void* from, u32 type, u64 at) {
    constexpr u32 TYPE_F16 = 1, TYPE_BF16 = 2;
    switch (type) {
        case TYPE_F16: return widen(static_cast<const f16*>(from)[at]);
        case TYPE_BF16: return widen(static_cast<const bf16*>(from)[at]);
        default: return static_cast<const float*>(from)[at];
    }
}

DEVICE float exp2_approximate(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

template <typename A, typename B>
constexpr bool SAME = false;
template <typename A>
constexpr bool SAME<A, A> = true;
