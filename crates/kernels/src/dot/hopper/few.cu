// Products of few rows, as records, and a matrix of 16-bit numbers that is read once, on the tensor cores of compute capability 9.0.
//
// A thread block has 16 of the matrix's rows (columns of y), and each of its warps every eighth block of them: eight lanes a row, whose elements it makes
// integers in registers. Integers may stand in any order, so they are multiplied in the order in which they were loaded. The blocks' values go to shared
// memory, from which they are added in ascending order.
//
// Macros: ELEMENT (f16 or bf16), EIGHTS (rows of a record, divided by eight).

constexpr u32 ROWS = 8 * EIGHTS;
using Cut = Record<ROWS>;

constexpr u32 WARPS = 8;
constexpr u32 COLUMNS = 16;
constexpr u32 HELD = (Cut::BYTES + 127) / 128 * 128;

template <int A, int B>
DEVICE void multiply(int (&sums)[4], const u32 (&a)[4], uint2 b);
#define MULTIPLY(A, B, A_TYPE, B_TYPE)                                                                                                     \
    template <>                                                                                                                            \
    DEVICE void multiply<A, B>(int (&sums)[4], const u32 (&a)[4], uint2 b) {                                                               \
        asm("mma.sync.aligned.m16n8k32.row.col.s32." A_TYPE "." B_TYPE ".s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
            : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])                                                                   \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));                                                             \
    }
enum Plane { UPPER_BYTES, LOWER_BYTES };
MULTIPLY(UPPER_BYTES, UPPER_BYTES, "s8", "s8")
MULTIPLY(UPPER_BYTES, LOWER_BYTES, "s8", "u8")
MULTIPLY(LOWER_BYTES, UPPER_BYTES, "u8", "s8")
MULTIPLY(LOWER_BYTES, LOWER_BYTES, "u8", "u8")

DEVICE float half_of(u32 word, bool high) {
    ELEMENT x;
    x.bits = (unsigned short)(high ? word >> 16 : word);
    return widen(x);
}

// A lane's 32 elements of a block of one row: four times eight, 32 apart.
struct Piece {
    uint4 eights[4];

    DEVICE const u32* words() const { return reinterpret_cast<const u32*>(eights); }

    DEVICE void load(const ELEMENT* from, i64 step, bool wide, i64 count) {
        if (wide && count >= 104) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                eights[i] = __ldcs(reinterpret_cast<const uint4*>(from + 32 * i));
            }
        } else {
            u32 words[16];
#pragma unroll
            for (int i = 0; i < 16; ++i) {
                const int at = 32 * (i / 4) + 2 * (i % 4);
                words[i] = (at < count ? u32(from[at * step].bits) : 0) | (at + 1 < count ? u32(from[(at + 1) * step].bits) << 16 : 0);
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                eights[i] = make_uint4(words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
            }
        }
    }

    // Of the row's block, which four lanes have.
    DEVICE u32 greatest() const {
        u32 most = 0;
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            most = __vmaxu2(most, words()[i] & 0x7fff7fffu);
        }
        most = max(most & 0xffff, most >> 16);
        most = max(most, __shfl_xor_sync(~0u, most, 1));
        most = max(most, __shfl_xor_sync(~0u, most, 2));
        return __float_as_uint(half_of(most, false));
    }

    DEVICE void cut(float inverse, u32 (&upper)[8], u32 (&lower)[8]) const {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            float sums[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                sums[e] = __fmaf_rn(half_of(words()[2 * i + e / 2], e % 2 != 0), inverse, ROUND);
            }
            split(sums, upper[i], lower[i]);
        }
    }
};

// 2^16 · upper + 2^8 · middle + lower, rounded once: both halves are integers below 2^22 and 2^23, to which the bits of f32's 1.5 · 2^23 and 2^23 are added.
DEVICE float join(int upper, int middle, int lower) {
    constexpr int UPPER = 0x4b400000, LOWER = 0x4b000000;
    const float high = __int_as_float(upper + (middle >> 8) + UPPER) - __int_as_float(UPPER);
    return __fmaf_rn(high, 65536.0f, __int_as_float(int(__byte_perm(middle, LOWER, 0x7504)) + lower) - __int_as_float(LOWER));
}

struct Shared {
    unsigned char records[WARPS][2][HELD];
    float values[2][WARPS][COLUMNS][ROWS];
    float units[2][WARPS][COLUMNS + ROWS];
    u64 full[WARPS][2];
};

// What a thread has of the results: of column i / ROWS and row i % ROWS those with i = threadIdx.x, and so on by 256.
constexpr u32 OWN = (COLUMNS * ROWS + 255) / 256;

// 16 rows of a matrix: of a lane's two the elements it begins with, from element to element, and whether all may be loaded as words.
struct Matrix {
    const ELEMENT* own[2];
    i64 step;
    bool wide;
};

// The lane's number among those of a row, and its row, of eight.
DEVICE u32 own_part() { return threadIdx.x % 4; }
DEVICE u32 own_row() { return threadIdx.x % 32 / 4; }

// The matrix's first elements are sent for before the launches ahead have ended.
DEVICE void multiply_few(const unsigned char* x, const Matrix& w, u64 k, Shared& shared, float (&sums)[OWN]) {
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, own = own_row(), quad = own_part();
    const u32 blocks = u32((k + BLOCK - 1) / BLOCK);
    const auto copy = [&](u32 block, u32 turn) {
        if (lane == 0 && block < blocks) {
            const u32 barrier = shared_address(&shared.full[warp][turn]);
            expect(barrier, Cut::BYTES);
            copy_bulk(shared_address(shared.records[warp][turn]), x + u64(block) * Cut::BYTES, Cut::BYTES, barrier);
        }
    };
    Piece next[2];
    const auto load = [&](u32 block) {
        if (block < blocks) {
            for (int r = 0; r < 2; ++r) {
                next[r].load(w.own[r] + i64(block) * BLOCK * w.step, w.step, w.wide, i64(k) - i64(block) * BLOCK - quad * 8);
            }
        }
    };
    admit_launches();
    load(warp);
    if (lane == 0) {
        init(shared_address(&shared.full[warp][0]), 1);
        init(shared_address(&shared.full[warp][1]), 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
    await_launches();
    asm volatile("fence.proxy.async;" ::: "memory");
    copy(warp, 0);
    u32 turn = 0, parity = 0;
    for (u32 start = 0; start < blocks; start += WARPS) {
        const u32 block = start + warp;
        if (block < blocks) {
            const Piece pieces[2] = {next[0], next[1]};
            load(block + WARPS);
            copy(block + WARPS, turn ^ 1);
            u32 upper[2][8], lower[2][8];
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const Unit<15> unit(pieces[r].greatest());
                pieces[r].cut(unit.inverse(), upper[r], lower[r]);
                if (quad == 0) {
                    shared.units[turn][warp][own + 8 * r] = unit.value();
                }
            }
            const unsigned char* record = shared.records[warp][turn];
            wait(shared_address(&shared.full[warp][turn]), parity);
#pragma unroll
            for (u32 t = 0; t < EIGHTS; ++t) {
                int high[4] = {}, middle[4] = {}, low[4] = {};
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const u32 at = Cut::place(8 * t + own, 2 * j + quad / 2) + quad % 2 * 8;
                    const uint2 b[2] = {*reinterpret_cast<const uint2*>(record + at), *reinterpret_cast<const uint2*>(record + Cut::PLANE + at)};
                    const u32 a_upper[4] = {upper[0][2 * j], upper[1][2 * j], upper[0][2 * j + 1], upper[1][2 * j + 1]};
                    const u32 a_lower[4] = {lower[0][2 * j], lower[1][2 * j], lower[0][2 * j + 1], lower[1][2 * j + 1]};
                    multiply<UPPER_BYTES, UPPER_BYTES>(high, a_upper, b[0]);
                    multiply<UPPER_BYTES, LOWER_BYTES>(middle, a_upper, b[1]);
                    multiply<LOWER_BYTES, UPPER_BYTES>(middle, a_lower, b[0]);
                    multiply<LOWER_BYTES, LOWER_BYTES>(low, a_lower, b[1]);
                }
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    *reinterpret_cast<float2*>(&shared.values[turn][warp][own + 8 * r][8 * t + 2 * quad]) =
                        make_float2(join(high[2 * r], middle[2 * r], low[2 * r]), join(high[2 * r + 1], middle[2 * r + 1], low[2 * r + 1]));
                }
            }
            for (u32 i = lane; i < ROWS; i += 32) {
                shared.units[turn][warp][COLUMNS + i] = *reinterpret_cast<const float*>(record + Cut::UNITS + 4 * i);
            }
        }
        __syncthreads();
        const u32 count = min(WARPS, blocks - start);
#pragma unroll
        for (u32 i = 0; i < OWN; ++i) {
            const u32 element = threadIdx.x + 256 * i, column = element / ROWS, row = element % ROWS;
            if (column < COLUMNS) {
                for (u32 j = 0; j < count; ++j) {
                    const float* units = shared.units[turn][j];
                    sums[i] = __fmaf_rn(shared.values[turn][j][column][row], units[COLUMNS + row] * units[column], sums[i]);
                }
            }
        }
        turn ^= 1;
        parity ^= turn ^ 1;
    }
}
