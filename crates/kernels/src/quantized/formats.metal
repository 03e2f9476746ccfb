// The blocks of each format, 32 elements at a time: element j is scale[j / 16] * q[j] + offset[j / 16].
struct Chunk {
    short q[32];
    float scale[2];
    float offset[2];
};

inline float number(device const uchar* p) {
    return float(as_type<half>(ushort(uint(p[0]) | uint(p[1]) << 8)));
}

// The 4 low bits of the first 16 bytes, then the 4 high ones.
inline uint nibble(device const uchar* bytes, uint j) {
    return j < 16 ? bytes[j] & 15u : uint(bytes[j - 16]) >> 4;
}

// One scale and one offset for all of a chunk.
inline void share(thread Chunk& chunk, float scale, float offset) {
    for (uint group = 0; group < 2; ++group) {
        chunk.scale[group] = scale;
        chunk.offset[group] = offset;
    }
}

struct Q4_0 {
    static constexpr constant uint ELEMENTS = 32, BYTES = 18, GROUP = 32;
    static constexpr constant bool OFFSETS = false;

    static void load(device const uchar* block, uint, thread Chunk& chunk) {
        share(chunk, number(block), 0.0f);
        for (uint j = 0; j < 32; ++j) {
            chunk.q[j] = short(int(nibble(block + 2, j)) - 8);
        }
    }
};

struct Q4_1 {
    static constexpr constant uint ELEMENTS = 32, BYTES = 20, GROUP = 32;
    static constexpr constant bool OFFSETS = true;

    static void load(device const uchar* block, uint, thread Chunk& chunk) {
        share(chunk, number(block), number(block + 2));
        for (uint j = 0; j < 32; ++j) {
            chunk.q[j] = short(nibble(block + 4, j));
        }
    }
};

// The fifth bits of 32 elements.
inline uint fifth(device const uchar* p) {
    return uint(p[0]) | uint(p[1]) << 8 | uint(p[2]) << 16 | uint(p[3]) << 24;
}

struct Q5_0 {
    static constexpr constant uint ELEMENTS = 32, BYTES = 22, GROUP = 32;
    static constexpr constant bool OFFSETS = false;

    static void load(device const uchar* block, uint, thread Chunk& chunk) {
        share(chunk, number(block), 0.0f);
        const uint bits = fifth(block + 2);
        for (uint j = 0; j < 32; ++j) {
            chunk.q[j] = short(int(nibble(block + 6, j) | (bits >> j & 1u) << 4) - 16);
        }
    }
};

struct Q5_1 {
    static constexpr constant uint ELEMENTS = 32, BYTES = 24, GROUP = 32;
    static constexpr constant bool OFFSETS = true;

    static void load(device const uchar* block, uint, thread Chunk& chunk) {
        share(chunk, number(block), number(block + 2));
        const uint bits = fifth(block + 4);
        for (uint j = 0; j < 32; ++j) {
            chunk.q[j] = short(nibble(block + 8, j) | (bits >> j & 1u) << 4);
        }
    }
};

struct Q8_0 {
    static constexpr constant uint ELEMENTS = 32, BYTES = 34, GROUP = 32;
    static constexpr constant bool OFFSETS = false;

    static void load(device const uchar* block, uint, thread Chunk& chunk) {
        share(chunk, number(block), 0.0f);
        for (uint j = 0; j < 32; ++j) {
            chunk.q[j] = short(as_type<char>(block[2 + j]));
        }
    }
};

// The scale and the offset of a chunk: 6 bits each, eight of both in the twelve bytes from the fourth on.
inline void share_scaled(thread Chunk& chunk, device const uchar* block, uint index) {
    device const uchar* packed = block + 4;
    uint scale, offset;
    if (index < 4) {
        scale = packed[index] & 63u;
        offset = packed[index + 4] & 63u;
    } else {
        scale = (packed[index + 4] & 15u) | (uint(packed[index - 4]) >> 6) << 4;
        offset = uint(packed[index + 4]) >> 4 | (uint(packed[index]) >> 6) << 4;
    }
    share(chunk, number(block) * float(scale), -(number(block + 2) * float(offset)));
}

struct Q4K {
    static constexpr constant uint ELEMENTS = 256, BYTES = 144, GROUP = 32;
    static constexpr constant bool OFFSETS = true;

    static void load(device const uchar* block, uint index, thread Chunk& chunk) {
        share_scaled(chunk, block, index);
        device const uchar* bytes = block + 16 + 32 * (index / 2);
        for (uint j = 0; j < 32; ++j) {
            chunk.q[j] = short(uint(bytes[j]) >> (4 * (index % 2)) & 15u);
        }
    }
};

struct Q5K {
    static constexpr constant uint ELEMENTS = 256, BYTES = 176, GROUP = 32;
    static constexpr constant bool OFFSETS = true;

    static void load(device const uchar* block, uint index, thread Chunk& chunk) {
        share_scaled(chunk, block, index);
        device const uchar* bytes = block + 48 + 32 * (index / 2);
        for (uint j = 0; j < 32; ++j) {
            chunk.q[j] = short((uint(bytes[j]) >> (4 * (index % 2)) & 15u) | (uint(block[16 + j]) >> index & 1u) << 4);
        }
    }
};

struct Q6K {
    static constexpr constant uint ELEMENTS = 256, BYTES = 210, GROUP = 16;
    static constexpr constant bool OFFSETS = false;

    static void load(device const uchar* block, uint index, thread Chunk& chunk) {
        const uint part = index / 4, quarter = index % 4;
        device const uchar* low = block + 64 * part + 32 * (quarter % 2);
        device const uchar* high = block + 128 + 32 * part;
        for (uint group = 0; group < 2; ++group) {
            chunk.scale[group] = number(block + 208) * float(as_type<char>(block[192 + 2 * index + group]));
        }
        for (uint j = 0; j < 32; ++j) {
            const uint q = (uint(low[j]) >> (4 * (quarter / 2)) & 15u) | (uint(high[j]) >> (2 * quarter) & 3u) << 4;
            chunk.q[j] = short(int(q) - 32);
        }
    }
};

struct Q2K {
    static constexpr constant uint ELEMENTS = 256, BYTES = 84, GROUP = 16;
    static constexpr constant bool OFFSETS = true;

    static void load(device const uchar* block, uint index, thread Chunk& chunk) {
        device const uchar* bytes = block + 16 + 32 * (index / 4);
        for (uint group = 0; group < 2; ++group) {
            const uint packed = block[2 * index + group];
            chunk.scale[group] = number(block + 80) * float(packed & 15u);
            chunk.offset[group] = -(number(block + 82) * float(packed >> 4));
        }
        for (uint j = 0; j < 32; ++j) {
            chunk.q[j] = short(uint(bytes[j]) >> (2 * (index % 4)) & 3u);
        }
    }
};

struct Q3K {
    static constexpr constant uint ELEMENTS = 256, BYTES = 110, GROUP = 16;
    static constexpr constant bool OFFSETS = false;

    static void load(device const uchar* block, uint index, thread Chunk& chunk) {
        device const uchar* bytes = block + 32 + 32 * (index / 4);
        device const uchar* packed = block + 96;
        for (uint group = 0; group < 2; ++group) {
            const uint at = 2 * index + group;
            const uint low = uint(packed[at % 8]) >> (4 * (at / 8)) & 15u, high = uint(packed[8 + at % 4]) >> (2 * (at / 4)) & 3u;
            chunk.scale[group] = number(block + 108) * float(int(low | high << 4) - 32);
        }
        for (uint j = 0; j < 32; ++j) {
            const uint q = (uint(bytes[j]) >> (2 * (index % 4)) & 3u) | (uint(block[j]) >> index & 1u) << 2;
            chunk.q[j] = short(int(q) - 4);
        }
    }
};

// The integers of the nonlinear formats, and twice the numbers of four bits with a sign, two bits of exponent and one of mantissa.
constant constexpr char NONLINEAR[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constant constexpr char DOUBLED[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

inline void choose(thread Chunk& chunk, constant const char* table, device const uchar* bytes, float scale) {
    share(chunk, scale, 0.0f);
    for (uint j = 0; j < 32; ++j) {
        chunk.q[j] = short(table[nibble(bytes, j)]);
    }
}

struct Iq4Nl {
    static constexpr constant uint ELEMENTS = 32, BYTES = 18, GROUP = 32;
    static constexpr constant bool OFFSETS = false;

    static void load(device const uchar* block, uint, thread Chunk& chunk) { choose(chunk, NONLINEAR, block + 2, number(block)); }
};

struct Iq4Xs {
    static constexpr constant uint ELEMENTS = 256, BYTES = 136, GROUP = 32;
    static constexpr constant bool OFFSETS = false;

    static void load(device const uchar* block, uint index, thread Chunk& chunk) {
        const uint low = uint(block[4 + index / 2]) >> (4 * (index % 2)) & 15u;
        const uint high = (uint(block[2]) | uint(block[3]) << 8) >> (2 * index) & 3u;
        choose(chunk, NONLINEAR, block + 8 + 16 * index, number(block) * float(int(low | high << 4) - 32));
    }
};

struct Mxfp4 {
    static constexpr constant uint ELEMENTS = 32, BYTES = 17, GROUP = 32;
    static constexpr constant bool OFFSETS = false;

    static void load(device const uchar* block, uint, thread Chunk& chunk) {
        // Half the power of two, as the table is doubled; the least two are subnormal.
        const uint exponent = block[0];
        choose(chunk, DOUBLED, block + 1, as_type<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23));
    }
};
