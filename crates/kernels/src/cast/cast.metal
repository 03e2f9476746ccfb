// Conversion between data types: one read, one write.

// The 24 leading bits, the last one set if any is lost (rounding to odd): rounding again, to fewer bits, is then rounding once.
inline float leading_bits(ulong magnitude) {
    const uint high = uint(magnitude >> 32);
    const uint zeros = high != 0 ? clz(high) : 32 + clz(uint(magnitude));
    const uint shift = zeros < 40 ? 40 - zeros : 0;
    const ulong kept = magnitude >> shift;
    const uint lost = kept << shift != magnitude ? 1 : 0;
    return float(uint(kept) | lost) * as_type<float>((127 + shift) << 23);
}

template <typename T>
inline float to_odd(T x) {
    return x < T(0) ? -leading_bits(0ul - ulong(x)) : leading_bits(ulong(x));
}

// To an integer: low bits of another, or towards zero and saturating.
template <typename T>
struct ToInteger {
    template <typename S>
    static T apply(S x) { return T(x); }

    static T apply(float x) {
        constexpr bool is_signed = T(-1) < T(0);
        const float limit = as_type<float>((127u + 8u * uint(sizeof(T)) - (is_signed ? 1u : 0u)) << 23);
        const T high = is_signed ? T(~0ul >> (65 - 8 * sizeof(T))) : T(~0ul);
        if (x >= limit) {
            return high;
        }
        const float low = is_signed ? -limit : 0.0f;
        return x > low ? T(x) : (isnan(x) ? T(0) : T(~high));
    }
};

struct ToFloat {
    template <typename S>
    static float apply(S x) { return float(x); }
};

// To a half, by way of what f32 holds exactly or rounded to odd.
struct ToHalf {
    template <typename S>
    static float apply(S x) { return to_odd(x); }

    static float apply(float x) { return x; }

    static float apply(bool x) { return float(x); }
};

struct ToBool {
    template <typename S>
    static bool apply(S x) { return x != S(0); }
};

template <typename T>
struct Conversion {
    typedef ToInteger<T> Op;
};

template <>
struct Conversion<float> {
    typedef ToFloat Op;
};

template <>
struct Conversion<half> {
    typedef ToHalf Op;
};

template <>
struct Conversion<bfloat> {
    typedef ToHalf Op;
};

template <>
struct Conversion<bool> {
    typedef ToBool Op;
};

template <typename S, typename T>
[[kernel]] void cast(
    device const S* x [[buffer(0)]],
    device T* y [[buffer(1)]],
    constant CastParams& params [[buffer(2)]],
    uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]])
{
    const ulong first = first_element(group, index);
    if (first >= params.space.count) {
        return;
    }
    const Run run(params.space, first);
    const Elements<S> from = load(x, params.space, params.x, run);
    Elements<T> to;
    for (uint i = 0; i < SLOTS; ++i) {
        to.at[i] = pack<T>(Conversion<T>::Op::apply(unpack<S>(from.at[i])));
    }
    store(y, run, to);
}
