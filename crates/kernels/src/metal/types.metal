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

// In integers, because not every device's own conversion keeps denormals; where it does, EXACT_BFLOAT is defined.
template <>
inline bfloat narrow<bfloat>(float x) {
#ifdef EXACT_BFLOAT
    return bfloat(x);
#else
    const uint bits = as_type<uint>(x);
    const uint rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return as_type<bfloat>(ushort(isnan(x) ? (bits >> 16) | 0x40u : rounded));
#endif
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

// SLOTS neighbouring elements as they lie in memory.
template <typename T>
struct Words {
    uint4 at[sizeof(T) / 2];
};

template <typename T>
inline Words<T> load_words(device const T* p) {
    Words<T> words;
    for (uint i = 0; i < sizeof(T) / 2; ++i) {
        words.at[i] = reinterpret_cast<device const uint4*>(p)[i];
    }
    return words;
}

inline void widen(Words<float> words, thread float* slots) {
    for (uint i = 0; i < SLOTS; ++i) {
        slots[i] = as_type<float>(words.at[i / 4][i % 4]);
    }
}

template <typename T>
inline void widen(Words<T> words, thread float* slots) {
    for (uint i = 0; i < SLOTS / 2; ++i) {
        slots[2 * i] = widen(as_type<T>(ushort(words.at[0][i])));
        slots[2 * i + 1] = widen(as_type<T>(ushort(words.at[0][i] >> 16)));
    }
}

template <typename T>
inline void load_wide(device const T* p, thread float* slots) {
    widen(load_words(p), slots);
}

template <typename T>
inline Words<T> narrow_words(thread const float* slots) {
    Words<T> words;
    for (uint i = 0; i < SLOTS / 2; ++i) {
        const uint low = as_type<ushort>(narrow<T>(slots[2 * i]));
        words.at[0][i] = low | uint(as_type<ushort>(narrow<T>(slots[2 * i + 1]))) << 16;
    }
    return words;
}

template <>
inline Words<float> narrow_words<float>(thread const float* slots) {
    Words<float> words;
    for (uint i = 0; i < SLOTS; ++i) {
        words.at[i / 4][i % 4] = as_type<uint>(slots[i]);
    }
    return words;
}

template <typename T>
inline void store_words(device T* p, Words<T> words) {
    for (uint i = 0; i < sizeof(T) / 2; ++i) {
        reinterpret_cast<device uint4*>(p)[i] = words.at[i];
    }
}

template <typename T>
inline void store_wide(device T* p, thread const float* slots) {
    store_words(p, narrow_words<T>(slots));
}

// N neighbouring elements, of at least four bytes, as they lie in memory.
template <typename T, uint N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Piece {
    uint words[N * sizeof(T) / 4];
};

template <uint N>
inline void widen(Piece<float, N> piece, thread float* values) {
    for (uint i = 0; i < N; ++i) {
        values[i] = as_type<float>(piece.words[i]);
    }
}

template <typename T, uint N>
inline void widen(Piece<T, N> piece, thread float* values) {
    for (uint i = 0; i < N / 2; ++i) {
        values[2 * i] = widen(as_type<T>(ushort(piece.words[i])));
        values[2 * i + 1] = widen(as_type<T>(ushort(piece.words[i] >> 16)));
    }
}

template <uint N>
inline void narrow(thread const float* values, thread Piece<float, N>& piece) {
    for (uint i = 0; i < N; ++i) {
        piece.words[i] = as_type<uint>(values[i]);
    }
}

template <typename T, uint N>
inline void narrow(thread const float* values, thread Piece<T, N>& piece) {
    for (uint i = 0; i < N / 2; ++i) {
        const uint low = as_type<ushort>(narrow<T>(values[2 * i]));
        piece.words[i] = low | uint(as_type<ushort>(narrow<T>(values[2 * i + 1]))) << 16;
    }
}

// Tells that element `number` of an input cannot be accepted.
inline void reject(device atomic_uint* error_flag, ulong number) {
    atomic_fetch_max_explicit(error_flag, ~uint(min(number, 0xfffffffeul)), memory_order_relaxed);
}
