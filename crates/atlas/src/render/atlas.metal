// What Atlas programs use of Metal, one meaning for every type: integers wrap, division is total, 16-bit floats compute in f32.

namespace atlas {

// Exact.
template <typename T>
inline float widen(T x) {
    return float(x);
}

template <>
inline float widen<bfloat>(bfloat x) {
    return as_type<float>(uint(as_type<ushort>(x)) << 16);
}

// To nearest even; NaN stays NaN.
template <typename T>
inline float rounded(float x) {
    return float(T(x));
}

// In integers, because not every device's own conversion keeps denormals; where it does, EXACT_BFLOAT is defined.
template <>
inline float rounded<bfloat>(float x) {
#ifdef EXACT_BFLOAT
    return float(bfloat(x));
#else
    const uint bits = as_type<uint>(x);
    return as_type<float>(isnan(x) ? bits | 0x400000u : (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
#endif
}

// Of a number that the type has.
template <typename T>
inline T narrow(float x) {
    return T(x);
}

template <>
inline bfloat narrow<bfloat>(float x) {
    return as_type<bfloat>(ushort(as_type<uint>(x) >> 16));
}

// Towards zero, saturating; NaN is zero.
template <typename T>
inline T saturate(float x) {
    constexpr bool is_signed = T(-1) < T(0);
    const float limit = as_type<float>((127u + 8u * uint(sizeof(T)) - (is_signed ? 1u : 0u)) << 23);
    const T high = is_signed ? T(~0ul >> (65 - 8 * sizeof(T))) : T(~0ul);
    if (x >= limit) {
        return high;
    }
    const float low = is_signed ? -limit : 0.0f;
    return x > low ? T(x) : (isnan(x) ? T(0) : T(~high));
}

// The 24 leading bits, the last one set if any is lost: rounding that to a half is then the only rounding.
inline float leading_bits(ulong magnitude) {
    const uint high = uint(magnitude >> 32);
    const uint zeros = high != 0 ? metal::clz(high) : 32 + metal::clz(uint(magnitude));
    const uint shift = zeros < 40 ? 40 - zeros : 0;
    const ulong kept = magnitude >> shift;
    const uint lost = kept << shift != magnitude ? 1 : 0;
    return float(uint(kept) | lost) * as_type<float>((127 + shift) << 23);
}

template <typename T>
inline float to_odd(T x) {
    return x < T(0) ? -leading_bits(0ul - ulong(x)) : leading_bits(ulong(x));
}

// A fault is reported by its number, the least if there are several.
inline void fail(device atomic_uint* fault, uint number) {
    atomic_fetch_max_explicit(fault, ~number, memory_order_relaxed);
}

// The index, reported if it is beyond the end.
template <typename I>
inline I inside(I index, ulong length, device atomic_uint* fault, uint number) {
    if (ulong(index) >= length) {
        fail(fault, number);
    }
    return index;
}

// Whether the steps that are left suffice for a repetition, whose cost they pay.
inline bool goes_on(thread uint& left, uint cost, device atomic_uint* fault, uint number) {
    if (left >= cost) {
        left -= cost;
        return true;
    }
    left = 0;
    fail(fault, number);
    return false;
}

// Beyond the end, where negative indices are too: zero.
template <typename T, typename I>
inline T load(device const T* memory, ulong length, I index) {
    return ulong(index) < length ? memory[index] : T(0);
}

template <typename T, typename I>
inline T load(threadgroup const T* memory, ulong length, I index) {
    return ulong(index) < length ? memory[index] : T(0);
}

// Beyond the end: nothing.
template <typename T, typename I>
inline void store(device T* memory, ulong length, I index, T value) {
    if (ulong(index) < length) {
        memory[index] = value;
    }
}

template <typename T, typename I>
inline void store(threadgroup T* memory, ulong length, I index, T value) {
    if (ulong(index) < length) {
        memory[index] = value;
    }
}

// Neighbouring elements, in one access.
template <typename T, uint N>
struct alignas(N * sizeof(T)) Word {
    T at[N];
};

// Whether a word begins there, all of which exists, in a buffer that begins at one.
template <uint N, typename I>
inline bool is_word(I index, ulong length) {
    return (ulong(index) & (N - 1)) == 0 && ulong(index) < length && length - ulong(index) >= N;
}

template <uint N, typename T, typename I>
inline Word<T, N> load_word(device const T* memory, I index) {
    if ((ulong(index) & (N - 1)) == 0) {
        return *reinterpret_cast<device const Word<T, N>*>(memory + index);
    }
    Word<T, N> word;
    for (uint i = 0; i < N; ++i) {
        word.at[i] = memory[strict::add(index, I(i))];
    }
    return word;
}

template <uint N, typename T, typename I>
inline Word<T, N> load_word(device const T* memory, ulong length, I index) {
    if (is_word<N>(index, length)) {
        return *reinterpret_cast<device const Word<T, N>*>(memory + index);
    }
    Word<T, N> word;
    for (uint i = 0; i < N; ++i) {
        word.at[i] = load(memory, length, strict::add(index, I(i)));
    }
    return word;
}

template <typename T, uint N, typename I>
inline void store_word(device T* memory, I index, Word<T, N> word) {
    if ((ulong(index) & (N - 1)) == 0) {
        *reinterpret_cast<device Word<T, N>*>(memory + index) = word;
        return;
    }
    for (uint i = 0; i < N; ++i) {
        memory[strict::add(index, I(i))] = word.at[i];
    }
}

template <typename T, uint N, typename I>
inline void store_word(device T* memory, ulong length, I index, Word<T, N> word) {
    if (is_word<N>(index, length)) {
        *reinterpret_cast<device Word<T, N>*>(memory + index) = word;
        return;
    }
    for (uint i = 0; i < N; ++i) {
        store(memory, length, strict::add(index, I(i)), word.at[i]);
    }
}

#define ATLAS_ATOMIC(space, type, name, function)                                                                              \
    template <typename I>                                                                                                      \
    inline type name(space type* memory, ulong length, I index, type value) {                                                  \
        return ulong(index) < length                                                                                           \
            ? function(reinterpret_cast<space atomic_##type*>(memory + index), value, memory_order_relaxed)                    \
            : type(0);                                                                                                         \
    }
#define ATLAS_ATOMICS(space, type)                                                                                             \
    ATLAS_ATOMIC(space, type, atomic_add, atomic_fetch_add_explicit)                                                           \
    ATLAS_ATOMIC(space, type, atomic_min, atomic_fetch_min_explicit)                                                           \
    ATLAS_ATOMIC(space, type, atomic_max, atomic_fetch_max_explicit)                                                           \
    ATLAS_ATOMIC(space, type, atomic_and, atomic_fetch_and_explicit)                                                           \
    ATLAS_ATOMIC(space, type, atomic_or, atomic_fetch_or_explicit)                                                             \
    ATLAS_ATOMIC(space, type, atomic_xor, atomic_fetch_xor_explicit)                                                           \
    ATLAS_ATOMIC(space, type, atomic_exchange, atomic_exchange_explicit)                                                       \
    template <typename I>                                                                                                      \
    inline type atomic_cas(space type* memory, ulong length, I index, type expected, type value) {                             \
        type seen = expected;                                                                                                  \
        if (ulong(index) >= length) {                                                                                          \
            return type(0);                                                                                                    \
        }                                                                                                                      \
        space atomic_##type* element = reinterpret_cast<space atomic_##type*>(memory + index);                                 \
        while (!atomic_compare_exchange_weak_explicit(element, &seen, value, memory_order_relaxed, memory_order_relaxed)) {    \
            if (seen != expected) {                                                                                            \
                break;                                                                                                         \
            }                                                                                                                  \
        }                                                                                                                      \
        return seen;                                                                                                           \
    }
ATLAS_ATOMICS(device, int)
ATLAS_ATOMICS(device, uint)
ATLAS_ATOMICS(threadgroup, int)
ATLAS_ATOMICS(threadgroup, uint)

// Simdgroups exchange at most 32 bits at once.
template <typename T>
inline T shuffle(T value, ushort lane) {
    return simd_shuffle(value, lane);
}

template <>
inline ulong shuffle<ulong>(ulong value, ushort lane) {
    return as_type<ulong>(simd_shuffle(as_type<uint2>(value), lane));
}

template <>
inline long shuffle<long>(long value, ushort lane) {
    return long(shuffle(ulong(value), lane));
}

template <>
inline bool shuffle<bool>(bool value, ushort lane) {
    return simd_shuffle(uint(value), lane) != 0;
}

// Lanes 16, 8, 4, 2, 1 apart; the first lane has the result.
template <typename Op, typename T>
inline T simd_fold(T value, uint lane) {
    for (uint apart = 16; apart > 0; apart >>= 1) {
        value = Op::apply(value, shuffle(value, ushort(lane ^ apart)));
    }
    return value;
}

template <typename Op, typename T>
inline T simd_reduce(T value, uint lane) {
    return shuffle(simd_fold<Op>(value, lane), ushort(0));
}

// The simdgroups in index order. `again`: some may still read what was reduced before.
template <typename Op, typename T>
inline T group_reduce(T value, threadgroup T* partial, uint lane, uint simdgroup, uint simdgroups, bool again) {
    value = simd_fold<Op>(value, lane);
    if (again) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (lane == 0) {
        partial[simdgroup] = value;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    T total = partial[0];
    for (uint g = 1; g < simdgroups; ++g) {
        total = Op::apply(total, partial[g]);
    }
    return total;
}

}  // namespace atlas
