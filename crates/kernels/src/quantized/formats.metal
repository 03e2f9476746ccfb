// Chunks of 32 neighbours in packed rows of quantised weights, and their products with integers.

// The words of a plane of BITS bits of a chunk, of which field f of byte b is that of element b + 4 BITS f.
template <uint BITS>
struct Plane {
    uint words[BITS];

    // Where the fields of elements 4 i … 4 i + 3 are, and they themselves, a byte each.
    static uint word(uint i) { return i % BITS; }
    static uint fields(uint word, uint i) { return (word >> (i / BITS * BITS)) & (0xffu >> (8 - BITS)) * 0x01010101u; }

    uint bytes(uint i) const { return fields(words[word(i)], i); }

    template <typename Place>
    static uint bytes_at(device const uchar* plane, uint i) {
        return fields(Place::word(plane + 4 * word(i)), i);
    }
};

template <>
struct Plane<0> {
    static uint fields(uint, uint) { return 0; }
    uint bytes(uint) const { return 0; }

    template <typename Place>
    static uint bytes_at(device const uchar*, uint) {
        return 0;
    }
};

// Words at multiples of their size, read once; or bytes from anywhere, the first lowest.
struct Aligned {
    static uint4 quad(device const uchar* from) { return load_past_cache(reinterpret_cast<device const uint4*>(from)); }
    static uint2 pair(device const uchar* from) { return *reinterpret_cast<device const uint2*>(from); }
    static uint word(device const uchar* from) { return *reinterpret_cast<device const uint*>(from); }
    static uint half_word(device const uchar* from) { return *reinterpret_cast<device const ushort*>(from); }
};

struct Anywhere {
    static uint half_word(device const uchar* from) { return uint(from[0]) | uint(from[1]) << 8; }
    static uint word(device const uchar* from) { return half_word(from) | half_word(from + 2) << 16; }
    static uint2 pair(device const uchar* from) { return uint2(word(from), word(from + 4)); }
    static uint4 quad(device const uchar* from) { return uint4(pair(from), pair(from + 8)); }
};

template <typename Place>
inline void load_plane(device const uchar* from, thread Plane<8>& plane) {
    const uint4 low = Place::quad(from), high = Place::quad(from + 16);
    for (uint i = 0; i < 4; ++i) {
        plane.words[i] = low[i];
        plane.words[4 + i] = high[i];
    }
}

template <typename Place>
inline void load_plane(device const uchar* from, thread Plane<4>& plane) {
    const uint4 words = Place::quad(from);
    for (uint i = 0; i < 4; ++i) {
        plane.words[i] = words[i];
    }
}

template <typename Place>
inline void load_plane(device const uchar* from, thread Plane<2>& plane) {
    const uint2 words = Place::pair(from);
    plane.words[0] = words.x;
    plane.words[1] = words.y;
}

template <typename Place>
inline void load_plane(device const uchar* from, thread Plane<1>& plane) {
    plane.words[0] = Place::word(from);
}

template <typename Place>
inline void load_plane(device const uchar*, thread Plane<0>&) {}

inline float number(uint bits) {
    return float(as_type<half>(ushort(bits)));
}

inline float brain_number(uint bits) {
    return as_type<float>(bits << 16);
}

// A scale and an offset for each half of a chunk.
struct Scales {
    float2 scale;
    float2 offset;
};

inline Scales alike(float scale, float offset) {
    return {float2(scale), float2(offset)};
}

// Of fields that are kept less 128.
inline Scales less_128(float scale, float offset) {
    return alike(scale, fma(scale, 128.0f, offset));
}

// Signed subscales of the number, one for each half.
inline Scales each_half(uint numbers, uint first, uint second) {
    const float of = number(numbers);
    return {float2(of * float(as_type<char>(uchar(first))), of * float(as_type<char>(uchar(second)))), float2(0.0f)};
}

// The same with offsets, which are subtracted: four bits each.
inline Scales both_halves(uint numbers, uint subscales) {
    const float scale = number(numbers), offset = number(numbers >> 16);
    const uint first = subscales & 255u, second = subscales >> 8;
    return {float2(scale * float(first & 15u), scale * float(second & 15u)), float2(-(offset * float(first >> 4)), -(offset * float(second >> 4)))};
}

// Half a power of two; the least two are subnormal.
inline float half_power(uint exponent) {
    return as_type<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
}

// Subscales of the scale and of the offset, which is subtracted.
inline Scales both(uint numbers, uint subscales) {
    return alike(number(numbers) * float(subscales & 255u), -(number(numbers >> 16) * float(subscales >> 8)));
}

// Fields that are integers themselves.
struct Plain {
    static constexpr constant bool IS_TABLE = false;
    static uint of(uint fields) { return fields; }
    static uint lower(uint word) { return word & 0x0f0f0f0fu; }
    static uint upper(uint word) { return word >> 4 & 0x0f0f0f0fu; }
};

// Fields of four bits that choose from sixteen integers, a signed byte each, the first lowest.
template <uint A, uint B, uint C, uint D>
struct Table {
    static constexpr constant bool IS_TABLE = true;
    static uint of(uint fields) { return lower(fields); }

    // What the lower fields of four bytes choose, and the upper ones: in CUDA both have most instructions in common.
#ifdef BYTE_TABLES
    static uint lower(uint word) { return elv::choose(A, B, C, D, word, 0x6420); }
    static uint upper(uint word) { return elv::choose(A, B, C, D, word, 0x7531); }
#else
    static uint lower(uint word) {
        uint bytes = 0;
        for (uint i = 0; i < 32; i += 8) {
            const uint field = word >> i, four = (field & 8) != 0 ? ((field & 4) != 0 ? D : C) : ((field & 4) != 0 ? B : A);
            bytes |= (four >> (8 * (field & 3)) & 0xffu) << i;
        }
        return bytes;
    }
    static uint upper(uint word) { return lower(word >> 4); }
#endif
};

// The nonlinear formats' integers: -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113.
typedef Table<0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u> Nonlinear;

// Twice the numbers with a sign, two bits of exponent and one of mantissa: 0, 1, 2, 3, 4, 6, 8, 12, and the same below zero.
typedef Table<0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu> Doubled;

// A format: bits of its planes, the lowest first; elements that share a scale; whether there are offsets; chunks of a block; bytes of subscales for each
// chunk and 16-bit numbers for each block; what is subtracted from fields, and how fields give integers; and the scales.
#define FORMAT(NAME, FIRST, SECOND, SHARING, WITH_OFFSETS, CHUNKS, BYTES, COUNT, LESS, FIELDS, SCALES) \
    struct NAME { \
        static constexpr constant uint LOW = FIRST, HIGH = SECOND, GROUP = SHARING, BLOCK = CHUNKS, SUBSCALES = BYTES, NUMBERS = COUNT; \
        static constexpr constant int ZERO = LESS; \
        static constexpr constant bool OFFSETS = WITH_OFFSETS; \
        typedef FIELDS Fields; \
        static Scales scales(uint numbers, uint subscales) { return SCALES; } \
    };

FORMAT(Q4_0, 4, 0, 32, false, 1, 0, 1, 8, Plain, alike(number(numbers), 0.0f))
FORMAT(Q4_1, 4, 0, 32, true, 1, 0, 2, 0, Plain, alike(number(numbers), number(numbers >> 16)))
FORMAT(Q5_0, 4, 1, 32, false, 1, 0, 1, 16, Plain, alike(number(numbers), 0.0f))
FORMAT(Q5_1, 4, 1, 32, true, 1, 0, 2, 0, Plain, alike(number(numbers), number(numbers >> 16)))
FORMAT(Q8_0, 8, 0, 32, false, 1, 0, 1, 0, Plain, alike(number(numbers), 0.0f))
FORMAT(Q2K, 2, 0, 16, true, 8, 2, 2, 0, Plain, both_halves(numbers, subscales))
FORMAT(Q3K, 2, 1, 16, false, 8, 2, 1, 4, Plain, each_half(numbers, subscales, subscales >> 8))
FORMAT(Q4K, 4, 0, 32, true, 8, 2, 2, 0, Plain, both(numbers, subscales))
FORMAT(Q5K, 4, 1, 32, true, 8, 2, 2, 0, Plain, both(numbers, subscales))
FORMAT(Q6K, 4, 2, 16, false, 8, 2, 1, 32, Plain, each_half(numbers, subscales, subscales >> 8))
FORMAT(Iq4Nl, 4, 0, 32, false, 1, 0, 1, 0, Nonlinear, alike(number(numbers), 0.0f))
FORMAT(Iq4Xs, 4, 0, 32, false, 8, 1, 1, 0, Nonlinear, each_half(numbers, subscales, subscales))
FORMAT(Mxfp4, 4, 0, 32, false, 1, 1, 0, 0, Doubled, alike(half_power(subscales), 0.0f))
FORMAT(Affine4Bf16, 4, 0, 32, true, 1, 0, 2, 0, Plain, alike(brain_number(numbers), brain_number(numbers >> 16)))
FORMAT(Affine8F16, 8, 0, 32, true, 1, 0, 2, 0, Plain, less_128(number(numbers), number(numbers >> 16)))
FORMAT(Affine8Bf16, 8, 0, 32, true, 1, 0, 2, 0, Plain, less_128(brain_number(numbers), brain_number(numbers >> 16)))

// The integers of elements 4 i … 4 i + 3 by the word that has their fields, of a format that has a table.
template <typename F>
inline uint chosen(uint word, uint i) {
    return i < 4 ? F::Fields::lower(word) : F::Fields::upper(word);
}

// The integers of four elements, a signed byte each, by the fields of both planes.
template <typename F>
inline uint signed_bytes(uint low, uint high) {
    const uint fields = F::Fields::of(low) | high << F::LOW;
    // A byte's own highest bit is set, so that nothing is borrowed from the next, and flipped.
    return F::ZERO == 0 ? fields : ((fields | 0x80808080u) - F::ZERO * 0x01010101u) ^ 0x80808080u;
}

// Where a chunk of a packed row of `chunks` has its parts.
template <typename F>
struct PackedPlace {
    device const uchar* low;
    device const uchar* high;
    device const uchar* subscales;
    device const uchar* numbers;

    PackedPlace() = default;
    PackedPlace(device const uchar* row, uint chunk, uint chunks) {
        low = row + 4 * F::LOW * ulong(chunk);
        row += 4 * F::LOW * ulong(chunks);
        high = row + 4 * F::HIGH * ulong(chunk);
        row += 4 * F::HIGH * ulong(chunks);
        subscales = row + F::SUBSCALES * ulong(chunk);
        numbers = row + F::SUBSCALES * ulong(chunks) + 2 * F::NUMBERS * ulong(chunk / F::BLOCK);
    }

    // The chunk `8 * blocks` after this, counted in eights.
    template <typename Place>
    uint subscales_after(ulong blocks) const {
        device const uchar* at = subscales + 8 * F::SUBSCALES * blocks;
        return F::SUBSCALES == 2 ? Place::half_word(at) : F::SUBSCALES == 1 ? uint(*at) : 0;
    }

    template <typename Place>
    uint numbers_after(ulong blocks) const {
        device const uchar* at = numbers + 16 / F::BLOCK * F::NUMBERS * blocks;
        return F::NUMBERS == 2 ? Place::word(at) : F::NUMBERS == 1 ? Place::half_word(at) : 0;
    }

    template <typename Place>
    Scales scales() const {
        return F::scales(numbers_after<Place>(0), subscales_after<Place>(0));
    }

    // Elements 4 i … 4 i + 3.
    template <typename Place>
    uint integers(uint i) const {
        return signed_bytes<F>(Plane<F::LOW>::template bytes_at<Place>(low, i), Plane<F::HIGH>::template bytes_at<Place>(high, i));
    }
};

// A chunk of a packed row.
template <typename F>
struct Packed {
    Plane<F::LOW> low;
    Plane<F::HIGH> high;
    uint subscales;
    uint numbers;

    // The chunk `8 * blocks` after the one at these places, counted in eights.
    template <typename Place>
    void load(PackedPlace<F> at, ulong blocks) {
        load_plane<Place>(at.low + 32 * F::LOW * blocks, low);
        load_plane<Place>(at.high + 32 * F::HIGH * blocks, high);
        subscales = at.template subscales_after<Place>(blocks);
        numbers = at.template numbers_after<Place>(blocks);
    }

    Scales scales() const { return F::scales(numbers, subscales); }

    // The products of each half with integers, in pairs, whose sums are `total`.
    int2 dots(thread const uint (&pairs)[16], int2 total) const {
        int sums[2] = {-F::ZERO * total.x, -F::ZERO * total.y}, above[2] = {0, 0};
        if (is_plain()) {
            // The upper fields of bytes are taken where they are: sixteenfold.
            sums[1] *= 16;
            for (uint i = 0; i < 4; ++i) {
                sums[0] = dot_four_unsigned(pairs[2 * i], pairs[2 * i + 1], low.words[i % F::LOW] & 0x0f0f0f0fu, sums[0]);
                sums[1] = dot_four_unsigned(pairs[2 * i + 8], pairs[2 * i + 9], low.words[i % F::LOW] & 0xf0f0f0f0u, sums[1]);
            }
            sums[1] >>= 4;
        }
        for (uint i = 0; i < 8; ++i) {
            if (!is_plain()) {
                const uint bytes = F::Fields::IS_TABLE ? chosen<F>(low.words[i % F::LOW], i) : low.bytes(i);
                sums[i / 4] = dot_four(pairs[2 * i], pairs[2 * i + 1], bytes, sums[i / 4]);
            }
            if (F::HIGH > 0) {
                above[i / 4] = dot_four(pairs[2 * i], pairs[2 * i + 1], high.bytes(i), above[i / 4]);
            }
        }
        return int2(sums[0] + (above[0] << F::LOW), sums[1] + (above[1] << F::LOW));
    }

    // Whether the only plane has four bits of an element, and not what chooses it.
    static bool is_plain() { return F::LOW == 4 && F::HIGH == 0 && !F::Fields::IS_TABLE; }

    // Elements 4 i … 4 i + 3, a signed byte each, times TIMES: four bits less eight are quickly had as the upper half of a byte.
    static constexpr constant uint TIMES = F::LOW == 4 && F::HIGH == 0 && F::ZERO == 8 ? 16 : 1;

    uint multiples(uint i) const {
        if (TIMES == 16) {
            return ((i < 4 ? low.words[i % F::LOW] << 4 : low.words[i % F::LOW]) & 0xf0f0f0f0u) ^ 0x80808080u;
        }
        if (F::Fields::IS_TABLE) {
            return chosen<F>(low.words[i % F::LOW], i);
        }
        return signed_bytes<F>(low.bytes(i), high.bytes(i));
    }
};
