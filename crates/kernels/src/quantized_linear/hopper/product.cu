// Products of records of rows and of quantised weights, on the tensor cores of compute capability 9.0.
//
// Weights become f16 in registers, and tensor cores add products in f32. All are integers whose sums stay below 2^24, so these are exact: what comes of them is
// what the definition makes of an exact sum. A warpgroup has 64 rows and two blocks of 64 columns, which are rows of weights, or, gated, rows of both. An
// element's eight sums are made one after the other, in the order in which the tree adds them. While the products of one block run, the ones before are folded.

constexpr u32 STAGES = 8, HEADER = 128, WARPGROUPS = 2, BLOCKS = 2 * WARPGROUPS, WIDTH = WeightRecord::ROWS;
// Steps of 16 elements of a part, and what is multiplied and folded at a time: a part of a block.
constexpr u32 STEPS = F::GROUP / 16, UNITS = 2 * PARTS;
constexpr bool IS_HALVED = F::OFFSETS && PARTS == 2;
constexpr u32 COPIED = IS_HALVED ? Record::BYTES : Record::HALVES, STAGE = Record::BYTES + BLOCKS * WeightRecord::BYTES;
// Of five bits without a sign half is taken, and added with the sum of the rows' integers.
constexpr u32 MIDDLE = F::LOW + F::HIGH == 5 && F::ZERO == 0 ? 16 : 0;
// The sums in the order in which the tree adds them, four bits each.
constexpr u32 ORDER = 0x73516240;
// Bits of BlockProduct::present, after those of the biases.
constexpr u32 GATED = 8;

// A place of the ring: who fills it starts with the other parity.
struct Place {
    u32 base;
    u32 stage;
    u32 parity;

    DEVICE u32 full() const { return base + 16 * stage; }
    DEVICE u32 empty() const { return full() + 8; }
    DEVICE u32 memory() const { return base + HEADER + stage * STAGE; }
    DEVICE u32 weights(u32 block) const { return memory() + Record::BYTES + block * WeightRecord::BYTES; }

    DEVICE void advance() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// Records have pieces of eight rows after each other.
DEVICE u64 pieces(u32 address) { return u64(address >> 4) | u64(Record::PIECE >> 4) << 16 | u64(128 >> 4) << 32; }

// Of a lane's columns, of which `weights` has 16 elements, the dot products with the rows.
#define DOTS(ADDED)                                                                                                                        \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADDED ", 0;\n"                                                                       \
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" LIST_32 "}, {%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}"             \
                 : F32(READ_AND_WRITTEN, dots, 0)                                                                                          \
                 : WEIGHTS, "l"(rows))

template <bool ADDED>
DEVICE void multiply(float (&dots)[32], const u32 (&weights)[4], u64 rows) {
    if constexpr (ADDED) {
        DOTS("1");
    } else {
        DOTS("0");
    }
}

// A lane's words of a chunk of a row of weights.
struct Words {
    u32 low;
    u32 high;

    DEVICE void load(u32 record, u32 own, u32 quad) {
        low = __float_as_uint(load_shared(record + own * 4 * F::LOW + 4 * (quad & F::LOW - 1)));
        if constexpr (F::HIGH > 0) {
            high = __float_as_uint(load_shared(record + WeightRecord::HIGH + own * 4 * F::HIGH + 4 * (quad & F::HIGH - 1)));
        }
    }

    // Elements 4 i … 4 i + 3 as f16.
    DEVICE void decode(u32 i, u32& first, u32& second) const {
        const bool is_plain = !F::Fields::IS_TABLE;
        const u32 bytes = is_plain ? formats::Plane<F::LOW>::fields(low, i) | formats::Plane<F::HIGH>::fields(high, i) << F::LOW
                                   : formats::chosen<F>(low, i) ^ 0x80808080u;
        // A byte b with 0x64 before it is 1024 + b.
        const u32 zero = (0x6400 + (is_plain ? F::ZERO + MIDDLE : 128)) * 0x10001u;
        asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(first) : "r"(__byte_perm(bytes, 0x64646464, 0x4140)), "r"(zero));
        asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(second) : "r"(__byte_perm(bytes, 0x64646464, 0x4342)), "r"(zero));
    }
};

// A block of a warpgroup's columns. A lane has those of lane / 4 and eight more, of 16 for each warp; and of each eight rows two, from lane % 4 · 2 on.
struct Block {
    Words words[2];
    float dots[32];
    float sums[32];

    DEVICE void load(u32 record, u32 own, u32 quad) {
        words[0].load(record, own, quad);
        words[1].load(record, own + 8, quad);
    }

    template <u32 PART>
    DEVICE void begin(u32 record, u32 quad) {
        u32 weights[STEPS][4];
#pragma unroll
        for (u32 step = 0; step < STEPS; ++step) {
#pragma unroll
            for (u32 e = 0; e < 2; ++e) {
                words[e].decode(quad + 4 * (PART * STEPS + step), weights[step][e], weights[step][2 + e]);
            }
        }
        begin_products();
#pragma unroll
        for (u32 step = 0; step < STEPS; ++step) {
            const u64 rows = pieces(record + (PART * STEPS + step) * 2 * Record::PIECE);
            step == 0 ? multiply<false>(dots, weights[step], rows) : multiply<true>(dots, weights[step], rows);
            multiply<true>(dots, weights[step], rows + Record::PLANE / 16);
        }
        end_products();
    }

    // By the scale and the offset of each column, and, of each two rows, their scales and sums.
    DEVICE void fold(const float2 (&columns)[2], const float2 (&scales)[8], const float2 (&totals)[8]) {
#pragma unroll
        for (u32 i = 0; i < 32; ++i) {
            const float2 column = columns[i / 2 % 2];
            const float scale = i % 2 ? scales[i / 4].y : scales[i / 4].x, total = i % 2 ? totals[i / 4].y : totals[i / 4].x;
            const float dot = MIDDLE > 0 ? __fmaf_rn(float(MIDDLE), total, dots[i]) : dots[i];
            sums[i] = __fmaf_rn(__fmul_rn(column.x, scale), dot, sums[i]);
            if (F::OFFSETS) {
                sums[i] = __fmaf_rn(__fmul_rn(column.y, scale), total, sums[i]);
            }
        }
    }
};

// Chunks whose products and folds overlap, at most: before the first and after the last of them no products run.
constexpr u32 TOGETHER = 2;

struct Computer {
    u32 warpgroup;
    // Its first column of a block.
    u32 own;
    u32 quad;
    Place place;
    Block blocks[2];

    template <u32 UNIT>
    DEVICE void load(Place of) {
        blocks[UNIT % 2].load(of.weights(2 * warpgroup + UNIT % 2), own, quad);
    }

    template <u32 COUNT, u32 UNIT>
    DEVICE void fold(const Place (&places)[COUNT], float2 (&scales)[8], float2 (&totals)[8]) {
        constexpr u32 PART = UNIT % UNITS / 2, NEXT = UNIT + 1, LATER = UNIT + 2, END = COUNT * UNITS;
        const Place& of = places[UNIT / UNITS];
        if (UNIT % UNITS == 0) {
#pragma unroll
            for (u32 eight = 0; eight < 8; ++eight) {
                const float4 numbers = load_four(of.memory() + Record::NUMBERS + 64 * eight + 16 * quad);
                scales[eight] = make_float2(numbers.x, numbers.y);
                totals[eight] = make_float2(numbers.z, numbers.w);
            }
        }
        if (IS_HALVED && UNIT % 2 == 0) {
#pragma unroll
            for (u32 eight = 0; eight < 8; ++eight) {
                totals[eight] = load_two(of.memory() + Record::HALVES + 64 * eight + 16 * quad + 8 * PART);
            }
        }
        float2 columns[2];
#pragma unroll
        for (u32 e = 0; e < 2; ++e) {
            const u32 from = of.weights(2 * warpgroup + UNIT % 2) + WeightRecord::SCALES + (PART * WIDTH + own + 8 * e) * WeightRecord::NUMBER;
            columns[e] = F::OFFSETS ? load_two(from) : make_float2(load_shared(from), 0.0f);
        }
        if constexpr (NEXT < END) {
            blocks[NEXT % 2].template begin<NEXT % UNITS / 2>(places[NEXT / UNITS].memory(), quad);
        }
        if constexpr (LATER < END && LATER % UNITS < 2) {
            load<LATER>(places[LATER / UNITS]);
        }
        await_products<NEXT < END ? 1 : 0>();
        settle(blocks[UNIT % 2].dots);
        blocks[UNIT % 2].fold(columns, scales, totals);
        if constexpr (NEXT < END) {
            fold<COUNT, NEXT>(places, scales, totals);
        }
    }

    template <u32 COUNT>
    DEVICE void take() {
        Place places[COUNT];
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i, place.advance()) {
            places[i] = place;
            wait(place.full(), place.parity);
        }
        load<0>(places[0]);
        load<1>(places[0]);
        blocks[0].template begin<0>(places[0].memory(), quad);
        float2 scales[8], totals[8];
        fold<COUNT, 0>(places, scales, totals);
        if (threadIdx.x % 32 == 0) {
#pragma unroll
            for (u32 i = 0; i < COUNT; ++i) {
                arrive(places[i].empty());
            }
        }
    }

    DEVICE float& sum(u32 i) { return blocks[i / 32].sums[i % 32]; }

    DEVICE void compute(u32 chunks) {
        // Sums that wait for others of the tree: three of an element at most.
        float waiting[3][64];
#pragma unroll
        for (u32 i = 0; i < 64; ++i) {
            sum(i) = 0.0f;
            blocks[i / 32].dots[i % 32] = 0.0f;
        }
#pragma unroll 1
        for (u32 pass = 0; pass < 8; ++pass) {
            u32 left = chunks / 8;
#pragma unroll 1
            for (; left >= TOGETHER; left -= TOGETHER) {
                take<TOGETHER>();
            }
#pragma unroll 1
            for (; left > 0; --left) {
                take<1>();
            }
            u32 count = __popc(pass);
#pragma unroll 1
            for (u32 rest = pass; rest & 1; rest >>= 1) {
                --count;
#pragma unroll
                for (u32 i = 0; i < 64; ++i) {
                    sum(i) = __fadd_rn(waiting[count][i], sum(i));
                }
            }
            if (pass < 7) {
#pragma unroll
                for (u32 i = 0; i < 64; ++i) {
                    waiting[count][i] = sum(i);
                    sum(i) = 0.0f;
                }
            }
        }
    }
};

extern "C" __global__ void __launch_bounds__(128 * (1 + WARPGROUPS), 1) quantized_linear_hopper(
    const uchar* x,
    const uchar* w,
    const void* b0,
    const void* b1,
    const void* b2,
    const float* residual,
    float* y0,
    float* y1,
    float* y2,
    const __grid_constant__ BlockProduct p) {
    extern __shared__ __align__(128) uchar memory[];
    const u32 base = shared_address(memory), chunks = u32(p.chunks);
    const bool gated = p.present & GATED;
    // Neighbours have the same columns.
    const u32 down = u32((p.m + ROWS - 1) / ROWS), down_at = blockIdx.x % down, across = blockIdx.x / down;
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < STAGES; ++i) {
            init(base + 16 * i, 1);
            init(base + 16 * i + 8, 4 * WARPGROUPS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    admit_launches();
    await_launches();
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 0) {
            // What the launches ahead wrote is copied by another unit than that of loads.
            asm volatile("fence.proxy.async;" ::: "memory");
            Place place = {base, 0, 1};
            for (u32 pass = 0; pass < 8; ++pass) {
                for (u32 chunk = ORDER >> 4 * pass & 7; chunk < chunks; chunk += 8, place.advance()) {
                    wait(place.empty(), place.parity);
                    expect(place.full(), COPIED + BLOCKS * WeightRecord::BYTES);
                    copy_bulk(place.memory(), x + (u64(down_at) * chunks + chunk) * Record::BYTES, COPIED, place.full());
#pragma unroll
                    for (u32 block = 0; block < BLOCKS; ++block) {
                        // Gated, the blocks of both weights in turn.
                        const u32 of = min(gated ? across * WARPGROUPS + block / 2 + block % 2 * p.ends[0] : across * BLOCKS + block, p.ends[2] - 1);
                        copy_bulk(place.weights(block), w + (u64(of) * chunks + chunk) * WeightRecord::BYTES, WeightRecord::BYTES, place.full());
                    }
                }
            }
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const u32 warpgroup = threadIdx.x / 128 - 1, quad = threadIdx.x % 4, own = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    Computer computer = {warpgroup, own, quad, {base, 0, 0}};
    computer.compute(chunks);
#pragma unroll
    for (u32 h = 0; h < 2; ++h) {
        const u32 block = gated ? across * WARPGROUPS + warpgroup : across * BLOCKS + 2 * warpgroup + h;
        const u32 number = u32(block >= p.ends[0]) + u32(block >= p.ends[1]), n = u32(p.n[number]);
        const void* const bias = number == 0 ? b0 : number == 1 ? b1 : b2;
        float* const y = number == 0 ? y0 : number == 1 ? y1 : y2;
        const u32 first = (block - (number == 0 ? 0 : p.ends[number - 1])) * WIDTH + own;
        if (block >= p.ends[gated ? 0 : 2] || (gated && h == 1)) {
            continue;
        }
#pragma unroll
        for (u32 e = 0; e < 2; ++e) {
            const u32 column = first + 8 * e;
            const float added = p.present >> number & 1 && column < n ? load_as(bias, p.bias, column) : 0.0f;
            const float up_added = gated && p.present & 2 && column < n ? load_as(b1, p.bias, column) : 0.0f;
#pragma unroll
            for (u32 i = 0; i < 16; ++i) {
                const u64 row = u64(down_at) * ROWS + i / 2 * 8 + 2 * quad + i % 2, at = row * n + column;
                const u32 from = i / 2 * 4 + 2 * e + i % 2;
                float value = computer.blocks[h].sums[from];
                if (row >= p.m || column >= n) {
                    continue;
                }
                if (p.present >> number & 1) {
                    value = __fadd_rn(value, added);
                }
                if (gated) {
                    const float up = computer.blocks[1].sums[from];
                    value = __fmul_rn(strict::gate(value, 1.0f), p.present & 2 ? __fadd_rn(up, up_added) : up);
                }
                y[at] = residual ? __fadd_rn(residual[at], value) : value;
            }
        }
    }
}
