// Rows of keys and values in a cache, as cached.rs: floats, or bytes, which are a row packed in Q8_0. A row of `width` elements has a signed byte for each, and then
// an f16 scale for each 32 of them.

// N neighbours of a packed row, as they lie in memory.
template <uint N>
struct alignas(N) PackedBytes {
    ushort pairs[N / 2];
};

// The same with their scale.
template <uint N>
struct PackedPiece {
    PackedBytes<N> bytes;
    ushort scale;
};

inline float packed_element(uint byte, ushort scale) {
    return float(as_type<half>(scale)) * float(int(as_type<char>(uchar(byte))));
}

template <uint N>
inline void widen(PackedPiece<N> piece, thread float* values) {
    for (uint i = 0; i < N; ++i) {
        values[i] = packed_element(uint(piece.bytes.pairs[i / 2]) >> (8 * (i % 2)) & 255u, piece.scale);
    }
}

// Neighbours of a row of T, and how they are read: from `element` on, an element, or as many as a word holds, which is aligned.
template <typename T>
struct CachedRow {
    typedef Words<T> Eight;
    template <uint N>
    using Few = Piece<T, N>;

    static Eight eight(device const T* row, uint element, uint) { return load_words(row + element); }
    template <uint N>
    static Few<N> few(device const T* row, uint element, uint) {
        return *reinterpret_cast<device const Few<N>*>(row + element);
    }
    static float one(device const T* row, uint element, uint) { return widen(row[element]); }
};

template <>
struct CachedRow<uchar> {
    typedef PackedPiece<8> Eight;
    template <uint N>
    using Few = PackedPiece<N>;

    template <uint N>
    static Few<N> few(device const uchar* row, uint element, uint width) {
        PackedPiece<N> piece;
        piece.bytes = *reinterpret_cast<device const PackedBytes<N>*>(row + element);
        piece.scale = *reinterpret_cast<device const ushort*>(row + width + element / 32 * 2);
        return piece;
    }
    static Eight eight(device const uchar* row, uint element, uint width) { return few<8>(row, element, width); }
    static float one(device const uchar* row, uint element, uint width) {
        device const uchar* scale = row + width + element / 32 * 2;
        return packed_element(row[element], ushort(scale[0] | uint(scale[1]) << 8));
    }
};

// Stores an element, if `writes`, and gives it as it is read again. Of a packed row nothing is stored before `quantise`: it is given as it is.
template <typename T>
inline float put(device T* row, uint element, float x, bool writes) {
    const T rounded = narrow<T>(x);
    if (writes) {
        row[element] = rounded;
    }
    return widen(rounded);
}

inline float put(device uchar*, uint, float x, bool) {
    return x;
}

// The same of a packed row: each lane of a simdgroup has one of the same 32 neighbours.
inline float quantise(device uchar* row, uint element, uint width, float x, bool writes) {
    float greatest = fabs(x);
    for (ushort mask = 16; mask > 0; mask >>= 1) {
        const float other = simd_shuffle_xor(greatest, mask);
        greatest = isnan(greatest) || greatest > other ? greatest : other;
    }
    const float scale = greatest / 127.0f, inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
    const float product = x * inverse;
    const int integer = isnan(product) ? 0 : int(clamp(round(product), -127.0f, 127.0f));
    const ushort rounded = isnan(scale) ? ushort(0x7e00) : as_type<ushort>(narrow<half>(scale));
    if (writes) {
        row[element] = as_type<uchar>(char(integer));
        if (element % 32 == 0) {
            device uchar* to = row + width + element / 32 * 2;
            to[0] = uchar(rounded);
            to[1] = uchar(rounded >> 8);
        }
    }
    return float(as_type<half>(rounded)) * float(integer);
}
