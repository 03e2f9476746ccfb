// Rows of x as 16-bit integers: 32 neighbours, a chunk, are multiples of one scale. Beside them the sum of each half.

// What a thread has of a chunk: eight integers, the sum of the half that they are in, and the scale.
struct Integers {
    uint4 words;
    int total;
    float scale;
};

// What elements are multiples of, where the largest magnitude has these bits: zero where it is no normal number, NaN where an element is not finite.
struct Multiples {
    float scale;
    float inverse;

    Multiples(uint largest) {
        const float exact = as_type<float>(largest) / 32767.0f;
        const bool is_normal = largest < 0x7f800000u && exact >= 0x1p-126f;
        scale = largest >= 0x7f800000u ? NAN : is_normal ? exact : 0.0f;
        inverse = is_normal ? 1.0f / exact : 0.0f;
    }

    // The nearest, ties to even, more than AS_FLOAT: the last bit of 12582912 is a one. Conversions are slow on some GPUs.
    static constexpr constant uint AS_FLOAT = 0x4b400000u;
    uint raised(float value) const { return as_type<uint>(value * inverse + 12582912.0f); }
    int of(float value) const { return int(raised(value) - AS_FLOAT); }
};

// Magnitudes sort as their bits do, infinity and NaN last.
inline uint magnitude(float value) {
    return as_type<uint>(value) & 0x7fffffffu;
}

// The integers of eight elements; the four threads of a chunk are neighbours.
inline Integers integers_of(thread const float (&values)[SLOTS]) {
    uint largest = 0;
    for (uint i = 0; i < SLOTS; ++i) {
        largest = max(largest, magnitude(values[i]));
    }
    largest = max(largest, simd_shuffle_xor(largest, 1));
    largest = max(largest, simd_shuffle_xor(largest, 2));
    const Multiples multiples(largest);
    Integers integers = {uint4(0), 0, multiples.scale};
    uint total = 0u - SLOTS * Multiples::AS_FLOAT;
    for (uint i = 0; i < SLOTS; i += 2) {
        const uint first = multiples.raised(values[i]), second = multiples.raised(values[i + 1]);
        integers.words[i / 2] = (first & 0xffffu) | second << 16;
        total += first + second;
    }
    integers.total = int(total);
    integers.total += simd_shuffle_xor(integers.total, 1);
    return integers;
}

// A row in threadgroup memory. The words are placed so that threads take neighbours: of eight chunks first the first quarters.
struct SharedIntegers {
    threadgroup uint4* words;
    threadgroup int2* totals;
    threadgroup float* scales;

    SharedIntegers(threadgroup float* memory, uint chunks) {
        const uint room = (chunks + 7) / 8 * 8;
        words = reinterpret_cast<threadgroup uint4*>(memory);
        totals = reinterpret_cast<threadgroup int2*>(memory + 16 * room);
        scales = memory + 18 * room;
    }

    static uint place(uint chunk, uint quarter) { return chunk / 8 * 32 + quarter * 8 + chunk % 8; }

    // Elements k … k + 7, if there are any.
    void store(uint k, bool exists, thread const float (&values)[SLOTS]) const {
        const Integers integers = integers_of(values);
        if (!exists) {
            return;
        }
        const uint chunk = k / 32, quarter = k / 8 % 4;
        words[place(chunk, quarter)] = integers.words;
        if (quarter == 0) {
            scales[chunk] = integers.scale;
        }
        if (quarter % 2 == 0) {
            reinterpret_cast<threadgroup int*>(totals)[2 * chunk + quarter / 2] = integers.total;
        }
    }

    // The same from chunk `8 * block + lane` on: of what a loop takes in turn, addresses then differ by constants.
    SharedIntegers from(uint block, uint lane) const {
        SharedIntegers rest = *this;
        rest.words += 32 * block + lane;
        rest.totals += 8 * block + lane;
        rest.scales += 8 * block + lane;
        return rest;
    }

    // Of chunk `8 * block + lane`.
    void load(uint, uint block, uint lane, thread uint (&pairs)[16]) const {
        for (uint quarter = 0; quarter < 4; ++quarter) {
            const uint4 word = words[32 * block + 8 * quarter + lane];
            for (uint i = 0; i < 4; ++i) {
                pairs[4 * quarter + i] = word[i];
            }
        }
    }

    float scale(uint, uint block, uint lane) const { return scales[8 * block + lane]; }

    int2 total(uint, uint block, uint lane) const { return totals[8 * block + lane]; }
};

// Rows in device memory: the words of all, then their sums, then their scales.
struct StoredIntegers {
    device const uint4* words;
    device const int2* totals;
    device const float* scales;
    uint chunks;
    // The last row; those after it stand for it.
    uint last;

    StoredIntegers(device const void* memory, constant Params& p) : chunks(uint(p.chunks)), last(uint(p.m) - 1) {
        const ulong count = p.m * p.chunks;
        words = reinterpret_cast<device const uint4*>(memory);
        totals = reinterpret_cast<device const int2*>(words + 4 * count);
        scales = reinterpret_cast<device const float*>(totals + count);
    }

    StoredIntegers from(uint block, uint lane) const {
        StoredIntegers rest = *this;
        rest.words += 4 * (8 * block + lane);
        rest.totals += 8 * block + lane;
        rest.scales += 8 * block + lane;
        return rest;
    }

    ulong at(uint row, uint block, uint lane) const { return ulong(min(row, last)) * chunks + 8 * block + lane; }

    void load(uint row, uint block, uint lane, thread uint (&pairs)[16]) const {
        for (uint quarter = 0; quarter < 4; ++quarter) {
            const uint4 word = words[4 * at(row, block, lane) + quarter];
            for (uint i = 0; i < 4; ++i) {
                pairs[4 * quarter + i] = word[i];
            }
        }
    }

    float scale(uint row, uint block, uint lane) const { return scales[at(row, block, lane)]; }

    int2 total(uint row, uint block, uint lane) const { return totals[at(row, block, lane)]; }
};

// Writes what StoredIntegers reads; a thread has eight elements.
template <typename T>
[[kernel, max_total_threads_per_threadgroup(256)]] void quantized_rows(
    device const T* x [[buffer(0)]],
    device T* stored [[buffer(1)]],
    constant Params& p [[buffer(2)]],
    uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]])
{
    await_launches();
    const ulong count = p.m * p.chunks, k = SLOTS * (256 * ulong(group) + thread_index);
    float values[SLOTS];
    RowReader<T>(x, 1, 32 * count).load(k, 0.0f, values);
    const Integers integers = integers_of(values);
    if (k >= 32 * count) {
        return;
    }
    device uint4* words = reinterpret_cast<device uint4*>(stored);
    device int* totals = reinterpret_cast<device int*>(words + 4 * count);
    device float* scales = reinterpret_cast<device float*>(totals + 2 * count);
    words[k / 8] = integers.words;
    if (k / 8 % 2 == 0) {
        totals[k / 16] = integers.total;
    }
    if (k / 8 % 4 == 0) {
        scales[k / 32] = integers.scale;
    }
}
