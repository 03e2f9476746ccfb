// Cuts the rows of a matrix in blocks and makes their records, rows beyond the last one zero.
//
// Macros: ELEMENT (float, f16 or bf16), HEIGHT (rows of a record) and BITS (of an integer).

// A thread has a piece of 16 elements, eight threads a row of a block.
constexpr int PIECE = 16;

template <typename T>
DEVICE void load(const T* from, i64 step, bool wide, int count, float (&x)[PIECE]) {
    if (wide && count == PIECE) {
        uint4 words[PIECE * sizeof(T) / 16];
#pragma unroll
        for (int i = 0; i < int(PIECE * sizeof(T) / 16); ++i) {
            words[i] = reinterpret_cast<const uint4*>(from)[i];
        }
        const T* const elements = reinterpret_cast<const T*>(words);
#pragma unroll
        for (int i = 0; i < PIECE; ++i) {
            x[i] = widen(elements[i]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < PIECE; ++i) {
            x[i] = i < count ? widen(from[i * step]) : 0.0f;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) dot_planes(const ELEMENT* x, unsigned char* records, const __grid_constant__ Lines p) {
    using Cut = Record<HEIGHT>;
    admit_launches();
    await_launches();
    const u32 blocks = u32((p.k + BLOCK - 1) / BLOCK), block = blockIdx.y * 8 + threadIdx.x / 32, piece = threadIdx.x % 8;
    if (block >= blocks) {
        return;
    }
    x += p.origin;
    const bool wide = p.strides[1] == 1 && ((u64(x) | u64(p.strides[0] * i64(sizeof(ELEMENT)))) & 15) == 0;
    const i64 first = i64(block) * BLOCK + piece * PIECE;
#pragma unroll 2
    for (u32 i = 0; i < 16; i += 4) {
        const u64 row = u64(blockIdx.x) * 16 + i + threadIdx.x % 32 / 8;
        if (row / HEIGHT * HEIGHT >= p.rows) {
            break;
        }
        const int count = row < p.rows ? int(max(min(i64(p.k) - first, i64(PIECE)), i64(0))) : 0;
        float values[PIECE];
        load(count > 0 ? x + i64(row) * p.strides[0] + first * p.strides[1] : x, p.strides[1], wide, count, values);
        u32 greatest = 0;
#pragma unroll
        for (int j = 0; j < PIECE; ++j) {
            greatest = max(greatest, __float_as_uint(values[j]) & 0x7fffffffu);
        }
#pragma unroll
        for (int lanes = 1; lanes < 8; lanes *= 2) {
            greatest = max(greatest, __shfl_xor_sync(~0u, greatest, lanes));
        }
        const Unit<BITS> unit(greatest);
        u32 upper[4], lower[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            float sums[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                sums[e] = __fmaf_rn(values[4 * j + e], unit.inverse(), ROUND);
                if constexpr (SAME<ELEMENT, float>) {
                    constexpr float LIMIT = (1 << (BITS - 1)) - 1;
                    sums[e] = fminf(fmaxf(sums[e], ROUND - LIMIT), ROUND + LIMIT);
                }
            }
            split(sums, upper[j], lower[j]);
        }
        unsigned char* record = records + (row / HEIGHT * blocks + block) * Cut::BYTES;
        const u32 place = Cut::place(u32(row % HEIGHT), piece);
        *reinterpret_cast<uint4*>(record + place) = make_uint4(upper[0], upper[1], upper[2], upper[3]);
        *reinterpret_cast<uint4*>(record + Cut::PLANE + place) = make_uint4(lower[0], lower[1], lower[2], lower[3]);
        if (piece == 0) {
            *reinterpret_cast<float*>(record + Cut::UNITS + 4 * (row % HEIGHT)) = unit.value();
        }
    }
}
