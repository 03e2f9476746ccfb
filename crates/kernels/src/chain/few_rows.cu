// Products of up to 64 rows.
//
// Thread blocks take tiles in turn, which have all rows, and rows of matrices. A warpgroup sends for pieces of k of matrices, before the launches ahead have
// ended; another sends for those of rows; a third multiplies them.
//
// Macro beside those of tiles.cu: PANELS (of a piece).

constexpr u32 COMPUTERS = 128, SENDERS = 128, ROW_SENDERS = 128;

// A place of the ring in shared memory: panels of matrices, then those of rows.
struct Place {
    u32 barriers;
    u32 memory;
    const ChainProduct& p;
    u32 stage;
    u32 parity;

    DEVICE u32 full() const { return barriers + 16 * stage; }
    DEVICE u32 empty() const { return full() + 8; }
    DEVICE u32 columns() const { return memory + stage * PANELS * (EIGHTS + p.eights) * ATOM; }
    DEVICE u32 rows() const { return columns() + PANELS * EIGHTS * ATOM; }

    DEVICE void advance() {
        if (++stage == p.stages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// What this thread sent for is there, once it is.
template <bool WIDE>
DEVICE void finish(u32 barrier) {
    if constexpr (WIDE) {
        arrive_after_copies(barrier);
    } else {
        asm volatile("fence.proxy.async;" ::: "memory");
        arrive(barrier);
    }
}

// Sends for rows of matrices: a thread for sixteen bytes of every sixteenth one.
template <bool WIDE>
DEVICE void send(Place place, const Layer (&layers)[3], u32 height) {
    constexpr u32 EVERY = SENDERS / 8, COUNT = (COLUMNS + EVERY - 1) / EVERY;
    const ChainProduct& p = place.p;
    const u32 thread = threadIdx.x - COMPUTERS, unit = thread % 8, row = thread / 8;
    const u32 at = row * 128 + (unit ^ row % 8) * 16;
    for (u32 index = blockIdx.x; index < p.ends[2]; index += gridDim.x) {
        const Tile tile(p, layers, index, height);
        const ELEMENT* from[COUNT];
#pragma unroll
        for (u32 r = 0; r < COUNT; ++r) {
            const u32 column = row + r * EVERY;
            const bool is_up = column >= height;
            from[r] = (is_up ? layers[1].w : tile.layer.w) + min(tile.first + column - (is_up ? height : 0), u32(tile.layer.n) - 1) * p.k + unit * 8;
        }
        for (u32 piece = 0; piece < p.pieces; ++piece, place.advance()) {
            wait(place.empty(), place.parity ^ 1);
#pragma unroll 1
            for (u32 panel = 0; panel < PANELS; ++panel) {
                const u32 to = place.columns() + panel * EIGHTS * ATOM + at, start = (piece * PANELS + panel) * PANEL;
#pragma unroll
                for (u32 r = 0; r < COUNT; ++r) {
                    if (COLUMNS % EVERY == 0 || row + r * EVERY < COLUMNS) {
                        copy_unit<WIDE>(to + r * EVERY * 128, from[r] + start);
                    }
                }
            }
            finish<WIDE>(place.full());
        }
    }
}

// Warps that send for rows: each for four of every sixteen.
DEVICE u32 row_warps(const ChainProduct& p) { return min(u32(p.m + 3) / 4, ROW_SENDERS / 32); }

// Sends for the rows, as often as there are tiles: a thread for sixteen bytes of every sixteenth one.
template <bool WIDE>
DEVICE void send_rows(Place place, const ELEMENT* x) {
    constexpr u32 EVERY = ROW_SENDERS / 8, COUNT = 64 / EVERY;
    const ChainProduct& p = place.p;
    const u32 thread = threadIdx.x - COMPUTERS - SENDERS, unit = thread % 8, row = thread / 8;
    const u32 at = row * 128 + (unit ^ row % 8) * 16;
    const ELEMENT* from[COUNT];
#pragma unroll
    for (u32 r = 0; r < COUNT; ++r) {
        from[r] = x + (row + r * EVERY) * p.k + unit * 8;
    }
    for (u32 index = blockIdx.x; index < p.ends[2]; index += gridDim.x) {
        for (u32 piece = 0; piece < p.pieces; ++piece, place.advance()) {
            wait(place.empty(), place.parity ^ 1);
#pragma unroll 1
            for (u32 panel = 0; panel < PANELS; ++panel) {
                const u32 to = place.rows() + panel * p.eights * ATOM + at, start = (piece * PANELS + panel) * PANEL;
#pragma unroll
                for (u32 r = 0; r < COUNT; ++r) {
                    if (row + r * EVERY < p.m) {
                        copy_unit<WIDE>(to + r * EVERY * 128, from[r] + start);
                    }
                }
            }
            finish<WIDE>(place.full());
        }
    }
}

DEVICE void meet_computers() { asm volatile("bar.sync 1, %0;" ::"n"(COMPUTERS) : "memory"); }

// Any tile, by way of shared memory.
DEVICE void store_tile(const float (&sums)[4 * EIGHTS], float* all, const ChainProduct& p, const Tile& tile, u32 height, const void* up_bias, const float* residual) {
    constexpr u32 PITCH = EIGHTS % 2 == 0 ? COLUMNS + 8 : COLUMNS;
    const u32 count = u32(p.m);
    meet_computers();
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
        const u32 row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + half * 8;
        if (row < count) {
#pragma unroll
            for (u32 eight = 0; eight < EIGHTS; ++eight) {
                *reinterpret_cast<float2*>(all + row * PITCH + 8 * eight + threadIdx.x % 4 * 2) = make_float2(sums[4 * eight + 2 * half], sums[4 * eight + 2 * half + 1]);
            }
        }
    }
    meet_computers();
    const Layer& layer = tile.layer;
    const bool gated = height < COLUMNS;
    for (u32 i = threadIdx.x; i < count * height; i += COMPUTERS) {
        const u32 row = gated ? i / (COLUMNS / 2) : i / COLUMNS, within = i - row * height;
        const u64 column = tile.first + within, place = row * layer.n + column;
        if (column < layer.n) {
            const float* x = all + row * PITCH + within;
            float value = p.present >> tile.number & 1 ? *x + load_as(layer.bias, p.bias, column) : *x;
            if (gated) {
                value = gate(value, p.present & 2 ? x[height] + load_as(up_bias, p.bias, column) : x[height]);
            }
            store_result(p, layer.y, place, p.present & RESIDUAL ? residual[place] + value : value);
        }
    }
}

DEVICE void compute(Place place, float* all, const Layer (&layers)[3], u32 height, const float* residual) {
    const ChainProduct& p = place.p;
    for (u32 index = blockIdx.x; index < p.ends[2]; index += gridDim.x) {
        float sums[4 * EIGHTS] = {};
        settle(sums);
        u32 before = 0;
        for (u32 piece = 0; piece < p.pieces; ++piece, place.advance()) {
            // The copies have ended and wgmma begins after them. A fence between the two kinds of accesses would also wait for the products before, at half the speed.
            wait(place.full(), place.parity);
            const u64 rows = descriptor(place.rows(), 16), columns = descriptor(place.columns(), 16);
            begin_products();
#pragma unroll
            for (u32 i = 0; i < PANELS * STEPS; ++i) {
                const u32 panel = i / STEPS, step = i % STEPS;
                multiply<ELEMENT>(sums, rows + panel * p.eights * (ATOM / 16) + 2 * step, columns + panel * EIGHTS * (ATOM / 16) + 2 * step);
            }
            end_products();
            await_products<1>();
            if (piece > 0 && threadIdx.x == 0) {
                arrive(before);
            }
            before = place.empty();
        }
        await_products<0>();
        if (threadIdx.x == 0) {
            arrive(before);
        }
        settle(sums);
        const Tile tile(p, layers, index, height);
        const bool wide = ((u64(tile.layer.y) | u64(residual)) & 7) == 0 && tile.layer.n % 2 == 0;
        if (wide && (p.present & BIASES) == 0 && tile.first + height <= tile.layer.n) {
            store_whole(sums, p, tile, height < COLUMNS, residual);
        } else {
            store_tile(sums, all, p, tile, height, layers[1].bias, residual);
        }
    }
}

extern "C" __global__ void __launch_bounds__(COMPUTERS + SENDERS + ROW_SENDERS, 1) chain_few_rows(
    const ELEMENT* x,
    const ELEMENT* w0,
    const ELEMENT* w1,
    const ELEMENT* w2,
    const void* b0,
    const void* b1,
    const void* b2,
    const float* residual,
    float* y0,
    float* y1,
    float* y2,
    unsigned char*,
    const __grid_constant__ ChainProduct p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const Layer layers[3] = {{w0, b0, y0, p.n[0]}, {w1, b1, y1, p.n[1]}, {w2, b2, y2, p.n[2]}};
    const u32 base = (shared_address(memory) + ATOM - 1) / ATOM * ATOM;
    // Barriers, the ring, and the sums of a tile.
    const Place place = {base, base + ATOM, p, 0, 0};
    const u32 height = p.present & GATED ? COLUMNS / 2 : COLUMNS;
    float* all = reinterpret_cast<float*>(memory + (place.memory - shared_address(memory)) + p.stages * PANELS * (EIGHTS + p.eights) * ATOM);
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < p.stages; ++i) {
            init(place.barriers + 16 * i, SENDERS + 32 * row_warps(p));
            init(place.barriers + 16 * i + 8, 1);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    admit_launches();
    if (threadIdx.x < COMPUTERS) {
        await_launches();
        compute(place, all, layers, height, residual);
    } else if (threadIdx.x >= COMPUTERS + SENDERS) {
        await_launches();
        if (threadIdx.x / 32 - (COMPUTERS + SENDERS) / 32 >= row_warps(p)) {
        } else if ((u64(x) & 15) == 0) {
            send_rows<true>(place, x);
        } else {
            send_rows<false>(place, x);
        }
    } else if (((u64(w0) | u64(w1) | u64(w2)) & 15) == 0) {
        send<true>(place, layers, height);
    } else {
        send<false>(place, layers, height);
    }
}
