// The product of two sides' records, on the tensor cores of compute capability 9.0.
//
// Thread blocks of three warpgroups walk over tiles of 128 rows by 128 columns. One thread of the first warpgroup copies records, one of rows and one of
// columns at a time, to a ring in shared memory. The other two warpgroups have 64 rows each: the four products of planes by wgmma, their exact sum to f32,
// and that times both units added to the sums of the blocks before.

using Cut = Record<128>;

constexpr u32 STAGES = 3;
constexpr u32 HEADER = 1024;
constexpr u32 HELD = (Cut::BYTES + 1023) / 1024 * 1024;  // A record in shared memory, as swizzling demands.
constexpr u32 BAND = 8;                                   // Tiles of rows that are walked over together, column after column.

// Bits of f32: an integer below 2^22 or 2^23 added to them is added to 1.5 · 2^23 or 2^23.
constexpr int UPPER = 0x4b400000;
constexpr int LOWER = 0x4b000000;

template <int N>
DEVICE void settle(int (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
        asm volatile("" : "+r"(x[i])::"memory");
    }
}

#define BOTH(x) "+r"(x)
#define MULTIPLY(A, B)                                                                                                                     \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                                                             \
                 "wgmma.mma_async.sync.aligned.m64n128k32.s32." A "." B " {" LIST_64 "}, %64, %65, p;\n}"                                  \
                 : F32(BOTH, sums, 0), F32(BOTH, sums, 32)                                                                                 \
                 : "l"(rows), "l"(columns), "n"(ADDED))

// A plane's bytes: the upper ones have a sign.
enum Plane { UPPER_BYTES, LOWER_BYTES };

template <Plane ROWS, Plane COLUMNS, int ADDED>
DEVICE void multiply(int (&sums)[64], u64 rows, u64 columns) {
    if constexpr (ROWS == UPPER_BYTES && COLUMNS == UPPER_BYTES) {
        MULTIPLY("s8", "s8");
    } else if constexpr (ROWS == UPPER_BYTES) {
        MULTIPLY("s8", "u8");
    } else if constexpr (COLUMNS == UPPER_BYTES) {
        MULTIPLY("u8", "s8");
    } else {
        MULTIPLY("u8", "u8");
    }
}

// Two records in shared memory, and the products of their planes over the block: added to what is there, or in its place.
struct Records {
    u32 rows;
    u32 columns;
    u32 group;

    template <Plane ROWS, Plane COLUMNS, int ADDED>
    DEVICE void multiply_planes(int (&sums)[64]) const {
        const u64 a = descriptor(rows + ROWS * Cut::PLANE + group * 64 * BLOCK, 0), b = descriptor(columns + COLUMNS * Cut::PLANE, 0);
        multiply<ROWS, COLUMNS, ADDED>(sums, a, b);
#pragma unroll
        for (int i = 2; i < 8; i += 2) {
            multiply<ROWS, COLUMNS, 1>(sums, a + i, b + i);
        }
    }
};

// A place of the ring: who fills it starts with the other parity.
struct Memory {
    u32 base;
    u32 stage;
    u32 parity;

    DEVICE u32 full() const { return base + 16 * stage; }
    DEVICE u32 empty() const { return full() + 8; }
    DEVICE u32 rows() const { return base + HEADER + stage * 2 * HELD; }
    DEVICE u32 columns() const { return rows() + HELD; }

    DEVICE void advance() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }

    static DEVICE void prepare(u32 base) {
        if (threadIdx.x == 0) {
            for (u32 i = 0; i < STAGES; ++i) {
                init(base + 16 * i, 1);
                init(base + 16 * i + 8, 8);
            }
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        __syncthreads();
    }
};

// Tiles in the order in which thread blocks take them.
struct Tiles {
    u32 down;
    u32 across;

    DEVICE explicit Tiles(const Product& p) : down(u32((p.results.m + 127) / 128)), across(u32((p.results.n + 127) / 128)) {}
    DEVICE u32 count() const { return down * across; }

    DEVICE void find(u32 index, u32& row, u32& column) const {
        const u32 first = index / (BAND * across) * BAND, height = min(BAND, down - first), within = index - first * across;
        row = first + within % height;
        column = within / height;
    }
};

DEVICE void copy_all(Memory memory, const Product& p, const unsigned char* rows, const unsigned char* columns) {
    const Tiles tiles(p);
    for (u32 index = blockIdx.x; index < tiles.count(); index += gridDim.x) {
        u32 row, column;
        tiles.find(index, row, column);
        const unsigned char* from[2] = {rows + u64(row) * p.blocks * Cut::BYTES, columns + u64(column) * p.blocks * Cut::BYTES};
        for (u32 block = 0; block < u32(p.blocks); ++block, memory.advance()) {
            wait(memory.empty(), memory.parity);
            expect(memory.full(), 2 * Cut::BYTES);
            copy_bulk(memory.rows(), from[0] + u64(block) * Cut::BYTES, Cut::BYTES, memory.full());
            copy_bulk(memory.columns(), from[1] + u64(block) * Cut::BYTES, Cut::BYTES, memory.full());
        }
    }
}

// Thread t of a warpgroup has rows t / 32 · 16 + t % 32 / 4 (and 8 more) and of each eight columns two from t % 4 · 2 on.
struct Computer {
    u32 group;
    u32 thread;

    DEVICE u32 row() const { return group * 64 + thread / 32 * 16 + thread % 32 / 4; }
    DEVICE u32 column() const { return thread % 4 * 2; }

    // The warpgroups begin their products in turn: one multiplies while the other adds.
    DEVICE void await_turn() const { asm volatile("bar.sync %0, 256;" ::"r"(1 + group) : "memory"); }
    DEVICE void give_turn() const { asm volatile("bar.arrive %0, 256;" ::"r"(2 - group) : "memory"); }

    // Adds a block's products. `lower` is LOWER, in a register that the compiler does not make anew at each use.
    DEVICE void add(float (&sums)[64], const Records& records, int lower) const {
        // With planes h and l of both sides: 2^16 · Σhh + 2^8 · (Σhl + Σlh) + Σll, where the last sum and the low byte of that before it are below 2^23.
        int high[64], low[64];
        settle(high);
        settle(low);
        await_turn();
        begin_products();
        records.multiply_planes<UPPER_BYTES, LOWER_BYTES, 0>(high);
        records.multiply_planes<LOWER_BYTES, UPPER_BYTES, 1>(high);
        records.multiply_planes<LOWER_BYTES, LOWER_BYTES, 0>(low);
        end_products();
        const float units[2] = {load_shared(records.rows + Cut::UNITS + 4 * row()), load_shared(records.rows + Cut::UNITS + 4 * row() + 32)};
        await_products<0>();
        give_turn();
        settle(high);
        settle(low);
#pragma unroll
        for (int i = 0; i < 64; ++i) {
            low[i] += int(__byte_perm(high[i], lower, 0x7504));
            // Written so that the compiler keeps the registers, which the next products add to.
            asm volatile("shr.s32 %0, %0, 8;\nadd.s32 %0, %0, %1;" : "+r"(high[i]) : "n"(UPPER));
        }
        settle(high);
        begin_products();
        records.multiply_planes<UPPER_BYTES, UPPER_BYTES, 1>(high);
        end_products();
#pragma unroll
        for (int i = 0; i < 64; ++i) {
            low[i] = __float_as_int(__int_as_float(low[i]) - __int_as_float(LOWER));
        }
        settle(low);
        await_products<0>();
        settle(high);
#pragma unroll
        for (int i = 0; i < 64; i += 4) {
            const float2 others = load_two(records.columns + Cut::UNITS + 4 * (column() + 2 * i));
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const float exact = __int_as_float(high[i + e]) - __int_as_float(UPPER);
                const float value = __fmaf_rn(exact, 65536.0f, __int_as_float(low[i + e]));
                sums[i + e] = __fmaf_rn(value, units[e / 2] * (e % 2 ? others.y : others.x), sums[i + e]);
            }
        }
    }

    DEVICE void store_tile(const float (&sums)[64], const Results& p, const void* bias, RESULT* y, u32 tile_row, u32 tile_column) const {
        const bool wide = (u64(y) | p.n * sizeof(RESULT)) % (2 * sizeof(RESULT)) == 0;
#pragma unroll
        for (int i = 0; i < 64; i += 2) {
            const u64 line = u64(tile_row) * 128 + row() + 8 * (i / 2 % 2), first = u64(tile_column) * 128 + column() + i / 4 * 8;
            if (line >= p.m || first >= p.n) {
                continue;
            }
            RESULT* to = y + line * p.n + first;
            const float x = finish(sums[i], p, bias, first);
            if (first + 1 == p.n) {
                store(to, x);
                continue;
            }
            const float next = finish(sums[i + 1], p, bias, first + 1);
            if (wide) {
                store_two(to, x, next);
            } else {
                store(to, x);
                store(to + 1, next);
            }
        }
    }
};

DEVICE void compute_all(Memory memory, const Product& p, const void* bias, RESULT* y) {
    const Tiles tiles(p);
    const Computer computer = {threadIdx.x / 128 - 1, threadIdx.x % 128};
    if (computer.group == 1) {
        computer.give_turn();
    }
    int lower = LOWER;
    asm volatile("xor.b32 %0, %0, %1;" : "+r"(lower) : "r"(threadIdx.x >> 16));
    for (u32 index = blockIdx.x; index < tiles.count(); index += gridDim.x) {
        float sums[64] = {};
        for (u32 block = 0; block < u32(p.blocks); ++block, memory.advance()) {
            wait(memory.full(), memory.parity);
            computer.add(sums, {memory.rows(), memory.columns(), computer.group}, lower);
            __syncwarp();
            if (threadIdx.x % 32 == 0) {
                arrive(memory.empty());
            }
        }
        u32 row, column;
        tiles.find(index, row, column);
        computer.store_tile(sums, p.results, bias, y, row, column);
    }
}

extern "C" __global__ void __launch_bounds__(384, 1)
    dot_product(const unsigned char* rows, const unsigned char* columns, const void* bias, RESULT* y, const __grid_constant__ Product p) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const u32 base = shared_address(shared);
    Memory::prepare(base);
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 0) {
            copy_all({base, 0, 1}, p, rows, columns);
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        compute_all({base, 0, 0}, p, bias, y);
    }
}
