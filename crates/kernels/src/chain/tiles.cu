// Tiles of rows, of the type of the matrices, times the matrices of up to three linear layers: each with a bias or none; of one layer, the residual added;
// of two, gated, half of a tile's rows of matrices of each, and the results rounded if need be.
//
// Macros: ELEMENT (f16 or bf16), EIGHTS and COLUMNS (a tile's rows of matrices, in eights and in all).

constexpr u32 PANEL = 64;     // Elements of a row of 128 bytes, as wgmma takes them from shared memory.
constexpr u32 STEPS = PANEL / 16;
constexpr u32 ATOM = 1024;    // Bytes of eight such rows, swizzled.
// Bits of ChainProduct::present.
constexpr u32 BIASES = 7, GATED = 8, ROUNDED = 16;

struct Layer {
    const ELEMENT* w;
    const void* bias;
    float* y;
    u64 n;
};

struct Tile {
    Layer layer;
    u32 number;
    u32 first;
    // Of the rows, and the first of these.
    u32 block;
    u64 row;

    DEVICE Tile(const ChainProduct& p, const Layer (&layers)[3], u32 index, u32 height) : block(0), row(0) {
        if (p.blocks > 1) {
            block = index % p.blocks;
            row = u64(block) * p.eights * 8;
            index /= p.blocks;
        }
        number = u32(index >= p.ends[0]) + u32(index >= p.ends[1]);
        layer = number == 0 ? layers[0] : number == 1 ? layers[1] : layers[2];
        first = (index - (number == 0 ? 0 : number == 1 ? p.ends[0] : p.ends[1])) * height;
    }
};

// Sixteen bytes of a row, to where wgmma takes them from. WIDE: they begin on a multiple of sixteen bytes.
template <bool WIDE>
DEVICE void copy_unit(u32 to, const ELEMENT* from) {
    if constexpr (WIDE) {
        copy_async(to, from);
    } else {
        u32 words[4];
        for (u32 e = 0; e < 4; ++e) {
            words[e] = from[2 * e].bits | u32(from[2 * e + 1].bits) << 16;
        }
        store_shared(to, words);
    }
}

// A result of a layer.
DEVICE void store_result(const ChainProduct& p, float* y, u64 place, float value) {
    if (p.present & ROUNDED) {
        store(reinterpret_cast<ELEMENT*>(y) + place, value);
    } else {
        y[place] = value;
    }
}

// What SwiGLU multiplies, to the bit.
DEVICE float gate(float x, float up) { return __fmul_rn(strict::gate(x, 1.0f), up); }

// A tile without biases, of whole eights of columns; the residual is added if there is one. Of each eight columns thread t has two from t % 4 · 2 on, of rows
// t / 32 · 16 + t % 32 / 4 and 8 more.
DEVICE void store_eights(const float (&sums)[4 * EIGHTS], const ChainProduct& p, const Tile& tile, bool gated, const float* residual) {
    constexpr u32 AT_ONCE = 8;    // So many that are read before some are written.
#pragma unroll
    for (u32 i = 0; i < 4; i += 2) {
        const u64 row = tile.row + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + i * 4;
        if (row >= p.m) {
            continue;
        }
        const u64 start = row * tile.layer.n + tile.first + threadIdx.x % 4 * 2;
        const u32 count = u32(tile.layer.n - tile.first) / 8;
        float2* to = reinterpret_cast<float2*>(tile.layer.y + start);
        const float2* before = reinterpret_cast<const float2*>(residual + start);
        if (gated) {
#pragma unroll
            for (u32 eight = 0; eight < EIGHTS / 2; ++eight) {
                const float *x = sums + 4 * eight + i, *up = x + EIGHTS / 2 * 4;
                const float2 pair = make_float2(gate(x[0], up[0]), gate(x[1], up[1]));
                if (eight >= count) {
                } else if (p.present & ROUNDED) {
                    reinterpret_cast<u32*>(tile.layer.y)[start / 2 + 4 * eight] = pack<ELEMENT>(pair.x, pair.y);
                } else {
                    to[4 * eight] = pair;
                }
            }
        } else if (residual) {
#pragma unroll
            for (u32 first = 0; first < EIGHTS; first += AT_ONCE) {
                float2 others[AT_ONCE];
#pragma unroll
                for (u32 eight = first; eight < first + AT_ONCE && eight < EIGHTS; ++eight) {
                    others[eight - first] = eight < count ? before[4 * eight] : float2{};
                }
#pragma unroll
                for (u32 eight = first; eight < first + AT_ONCE && eight < EIGHTS; ++eight) {
                    const float2 other = others[eight - first];
                    if (eight < count) {
                        to[4 * eight] = make_float2(other.x + sums[4 * eight + i], other.y + sums[4 * eight + i + 1]);
                    }
                }
            }
        } else {
#pragma unroll
            for (u32 eight = 0; eight < EIGHTS; ++eight) {
                if (eight < count) {
                    to[4 * eight] = make_float2(sums[4 * eight + i], sums[4 * eight + i + 1]);
                }
            }
        }
    }
}
