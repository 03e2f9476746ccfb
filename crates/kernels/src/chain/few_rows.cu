// Products of up to 64 rows.
//
// Thread blocks take tiles in turn, which have all rows, and rows of matrices. A warpgroup sends for pieces of k of matrices, before the launches ahead have
// ended; another sends for those of rows; a third multiplies them. Rows that are HELD, of at most eight, are in shared memory as a whole, where that warpgroup may
// normalise them. Where ranks of a group gather the results, those that multiply push them.

// Warps that send for rows: each for four of every sixteen.
DEVICE u32 row_warps(const ChainProduct& p) { return min(u32(p.m + 3) / 4, ROW_SENDERS / 32); }

DEVICE void meet_row_senders() { asm volatile("bar.sync 2, %0;" ::"n"(ROW_SENDERS) : "memory"); }

// Normalises f32 rows into shared memory: as rms_norm.metal does, to the bit.
DEVICE void normalise(const ChainProduct& p, const float* x, const void* weight, float (&partial)[ROW_SENDERS / 32], ELEMENT* rows) {
    constexpr u32 SLOTS = 8, VISITS = 4;
    const u32 thread = threadIdx.x - COMPUTERS - SENDERS, first = thread < p.sharing ? SLOTS * thread : u32(p.k), stride = SLOTS * p.sharing;
    float factors[VISITS][SLOTS];
#pragma unroll
    for (u32 v = 0; v < VISITS; ++v) {
#pragma unroll
        for (u32 i = 0; i < SLOTS; ++i) {
            factors[v][i] = weight && first + v * stride < p.k ? load_as(weight, p.norm, first + v * stride + i) : 1.0f;
        }
    }
    await_launches();
    for (u32 row = 0; row < p.m; ++row, x += p.k, rows += p.k) {
        float kept[VISITS][SLOTS], sums[SLOTS] = {};
        const bool wide = (u64(x) & 15) == 0;
#pragma unroll
        for (u32 v = 0; v < VISITS; ++v) {
            const u32 at = first + v * stride;
#pragma unroll
            for (u32 i = 0; i < SLOTS; i += 4) {
                const float* const from = x + at + i;
                const float4 four = at >= p.k ? float4{} : wide ? *reinterpret_cast<const float4*>(from) : float4{from[0], from[1], from[2], from[3]};
                kept[v][i] = four.x;
                kept[v][i + 1] = four.y;
                kept[v][i + 2] = four.z;
                kept[v][i + 3] = four.w;
            }
        }
#pragma unroll
        for (u32 v = 0; v < VISITS; ++v) {
#pragma unroll
            for (u32 i = 0; i < SLOTS; ++i) {
                sums[i] = __fmaf_rn(kept[v][i], kept[v][i], sums[i]);
            }
        }
        float sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
#pragma unroll
        for (u32 lanes = 16; lanes > 0; lanes /= 2) {
            sum += __shfl_xor_sync(~0u, sum, lanes);
        }
        if (thread % 32 == 0) {
            partial[thread / 32] = sum;
        }
        meet_row_senders();
        sum = partial[0];
        for (u32 i = 1; i < p.sharing / 32; ++i) {
            sum += partial[i];
        }
        const float scale = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(sum, float(p.k)) + p.epsilon));
#pragma unroll
        for (u32 v = 0; v < VISITS; ++v) {
            if (first + v * stride < p.k) {
                u32 words[SLOTS / 2];
#pragma unroll
                for (u32 i = 0; i < SLOTS; i += 2) {
                    words[i / 2] = pack<ELEMENT>(kept[v][i] * scale * factors[v][i], kept[v][i + 1] * scale * factors[v][i + 1]);
                }
                store_shared(shared_address(rows + first + v * stride), words);
            }
        }
        meet_row_senders();
    }
}

// Copies rows into shared memory.
template <bool WIDE>
DEVICE void hold(const ChainProduct& p, const ELEMENT* x, ELEMENT* rows) {
    for (u32 i = 8 * (threadIdx.x - COMPUTERS - SENDERS); i < p.m * p.k; i += 8 * ROW_SENDERS) {
        copy_unit<WIDE>(shared_address(rows + i), x + i);
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
}

// The rows are held: reported by the threads that send for them, awaited by those that multiply.
DEVICE void report_rows() { asm volatile("bar.arrive 3, %0;" ::"n"(ROW_SENDERS + COMPUTERS) : "memory"); }
DEVICE void await_rows() { asm volatile("bar.sync 3, %0;" ::"n"(ROW_SENDERS + COMPUTERS) : "memory"); }

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
#pragma unroll
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

// A tile's results, of type T, from shared memory: to the peers, and theirs at the same places.
template <typename T>
DEVICE void exchange_tile(const float* all, u32 pitch, const ChainProduct& p, const Tile& tile, u32 height, Exchange& exchange) {
    // Units of a row of the tile, where it is gated and where it is not: the compiler divides by them.
    constexpr u32 EACH = 16 / sizeof(T), GATED_UNITS = (COLUMNS / 2 + EACH - 1) / EACH, UNITS = COLUMNS / EACH;
    const bool gated = height < COLUMNS;
    const u32 units = gated ? GATED_UNITS : UNITS, count = u32(p.m) * units, width = u32(tile.layer.n) / EACH;
    const auto for_each = [&](auto visit) {
        for (u32 i = threadIdx.x; i < count; i += COMPUTERS) {
            const u32 row = gated ? i / GATED_UNITS : i / UNITS, within = i - row * units;
            const Placed at = {row, tile.first / EACH + within, width};
            if (at.unit < width) {
                visit(at, all + row * pitch + within * EACH);
            }
        }
    };
    meet_computers();
    for_each([&](Placed at, const float* from) { exchange.send(at, unit_of<T>(from)); });
    for_each([&](Placed at, const float*) { exchange.take(at); });
}

// Any tile, by way of shared memory.
DEVICE void store_tile(
    const float (&sums)[4 * EIGHTS],
    float* all,
    const ChainProduct& p,
    const Tile& tile,
    u32 height,
    const void* up_bias,
    const float* residual,
    Exchange& exchange) {
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
            value = residual ? residual[place] + value : value;
            store_result(p, layer.y, place, value);
            if (PUSHES) {
                all[row * PITCH + within] = value;
            }
        }
    }
    if (PUSHES) {
        p.present & ROUNDED ? exchange_tile<ELEMENT>(all, PITCH, p, tile, height, exchange) : exchange_tile<float>(all, PITCH, p, tile, height, exchange);
    }
}

// What is added to the results of a small whole tile, sent for before they are there.
struct Addends {
    static constexpr u32 COUNT = EIGHTS <= 8 ? EIGHTS : 0;
    float2 values[2][COUNT + 1];

    DEVICE void load(const ChainProduct& p, const Tile& tile, const float* residual) {
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            const u32 row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + half * 8;
            const float2* from = reinterpret_cast<const float2*>(residual + row * tile.layer.n + tile.first + threadIdx.x % 4 * 2);
#pragma unroll
            for (u32 eight = 0; eight < COUNT && row < p.m; ++eight) {
                values[half][eight] = from[4 * eight];
            }
        }
    }

    DEVICE void add_to(float (&sums)[4 * EIGHTS]) const {
#pragma unroll
        for (u32 i = 0; i < 4 * COUNT; i += 2) {
            const float2 other = values[i / 2 % 2][i / 4];
            sums[i] = other.x + sums[i];
            sums[i + 1] = other.y + sums[i + 1];
        }
    }
};

// Adds up a tile's products. A place of the ring is given back once the products of the next piece have begun.
struct Products {
    Place& place;
    float (&sums)[4 * EIGHTS];
    u32 before = 0;

    // So many steps of a piece, from `first` on, by rows that are held: a thread's words of eight rows for each step.
    template <u32 COUNT>
    DEVICE void multiply_held_steps(const u64 (&held)[COUNT], u32 first) {
        const u64 columns = descriptor(place.columns(), 16);
        begin_products();
#pragma unroll
        for (u32 i = 0; i < COUNT; ++i) {
            const u32 step = first + i;
            multiply_held<ELEMENT>(sums, held[i], offset_by(columns, step / STEPS * EIGHTS * ATOM + step % STEPS * 32));
        }
        end_products();
        await_products<1>();
    }

    DEVICE void multiply_piece() {
        const u64 rows = descriptor(place.rows(), 16), columns = descriptor(place.columns(), 16);
        begin_products();
#pragma unroll
        for (u32 i = 0; i < PANELS * STEPS; ++i) {
            const u32 panel = i / STEPS, step = i % STEPS;
            multiply<ELEMENT>(sums, offset_by(rows, panel * place.p.eights * ATOM + 32 * step), offset_by(columns, panel * EIGHTS * ATOM + 32 * step));
        }
        end_products();
        await_products<1>();
    }

    // The products of the piece before have ended.
    DEVICE void give_back() const {
        if (before != 0 && threadIdx.x == 0) {
            arrive(before);
        }
    }

    DEVICE void advance() {
        before = place.empty();
        place.advance();
    }
};

// Of a row that is held, from a thread's words of its first step on; of one that does not exist, zeros.
template <u32 COUNT>
DEVICE void load_held(u64 (&held)[COUNT], const u32* own, bool exists, u32 first) {
#pragma unroll
    for (u32 i = 0; i < COUNT; ++i) {
        const u32* const from = own + (first + i) * 8;
        held[i] = exists ? from[0] | u64(from[4]) << 32 : 0;
    }
}

DEVICE void compute(Place place, float* all, const ELEMENT* rows, const Layer (&layers)[3], u32 height, const float* residual, const Peers& peers) {
    const ChainProduct& p = place.p;
    Exchange exchange(peers);
    if (PUSHES) {
        meet_computers();
        if (threadIdx.x == 0) {
            exchange.begin();
        }
    }
    const u32 row = threadIdx.x / 4;
    const bool exists = row < p.m;
    const u32* const own = reinterpret_cast<const u32*>(rows + (exists ? row : 0) * p.k) + threadIdx.x % 4;
    if (HELD) {
        await_rows();
    }
    for (u32 index = blockIdx.x; index < p.ends[2]; index += gridDim.x) {
        const Tile tile(p, layers, index, height);
        const bool whole =
            ((u64(tile.layer.y) | u64(residual)) & 7) == 0 && tile.layer.n % 2 == 0 && (p.present & BIASES) == 0 && tile.first + height <= tile.layer.n;
        const bool ahead = Addends::COUNT > 0 && whole && residual;
        Addends addends;
        if (ahead) {
            addends.load(p, tile, residual);
        }
        float sums[4 * EIGHTS] = {};
        settle(sums);
        Products products = {place, sums};
        if constexpr (HELD) {
            // While the products of some steps run, the words of the next ones are loaded.
            constexpr u32 COUNT = PANELS * STEPS / 2;
            u64 even[COUNT], odd[COUNT];
            load_held(even, own, exists, 0);
            for (u32 piece = 0; piece < p.pieces; ++piece) {
                const u32 first = piece * 2 * COUNT;
                wait(place.full(), place.parity);
                products.multiply_held_steps(even, 0);
                products.give_back();
                load_held(odd, own, exists, first + COUNT);
                products.multiply_held_steps(odd, COUNT);
                products.advance();
                if (piece + 1 < p.pieces) {
                    load_held(even, own, exists, first + 2 * COUNT);
                }
            }
        } else {
            // The copies have ended and wgmma begins after them. A fence between the two kinds of accesses would also wait for the products before, at half the speed.
            for (u32 piece = 0; piece < p.pieces; ++piece) {
                wait(place.full(), place.parity);
                products.multiply_piece();
                products.give_back();
                products.advance();
            }
        }
        await_products<0>();
        products.give_back();
        settle(sums);
        if (ahead) {
            addends.add_to(sums);
        }
        // By way of shared memory all threads take part in the gates of few rows.
        if (!PUSHES && whole && (height == COLUMNS || p.m > 32)) {
            store_eights(sums, p, tile, height < COLUMNS, ahead ? nullptr : residual);
        } else {
            store_tile(sums, all, p, tile, height, layers[1].bias, ahead ? nullptr : residual, exchange);
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
    const void* norm,
    PEERS_PARAMETERS const __grid_constant__ ChainProduct p FLAG_PARAMETER) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const Peers peers = PEERS(p.push);
    const Layer layers[3] = {{w0, b0, y0, p.n[0]}, {w1, b1, y1, p.n[1]}, {w2, b2, y2, p.n[2]}};
    const u32 base = (shared_address(memory) + COMING + ATOM - 1) / ATOM * ATOM;
    // What senders decode, barriers, the ring, the sums of a tile, and rows that are held.
    const Place place = {base, base + ATOM, p, 0, 0};
    const u32 height = p.present & GATED ? COLUMNS / 2 : COLUMNS;
    float* all = reinterpret_cast<float*>(memory + (place.memory - shared_address(memory)) + p.stages * piece_bytes(p));
    ELEMENT* const rows = reinterpret_cast<ELEMENT*>(all + 8 * p.eights * (COLUMNS + 8));
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < p.stages; ++i) {
            init(place.barriers + 16 * i, REPORTS + (HELD ? 0 : 32 * row_warps(p)));
            init(place.barriers + 16 * i + 8, 1);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    admit_launches();
    // A warp's threads have one role: the compiler takes uniform registers for what they have alike.
    const u32 warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    if (warp < COMPUTERS / 32) {
        await_launches();
        compute(place, all, rows, layers, height, residual, peers);
    } else if (warp >= (COMPUTERS + SENDERS) / 32) {
        if (HELD && p.sharing > 0) {
            // Behind the barriers.
            unsigned char* const free = memory + (place.barriers - shared_address(memory)) + ATOM / 2;
            normalise(p, reinterpret_cast<const float*>(x), norm, *reinterpret_cast<float(*)[ROW_SENDERS / 32]>(free), rows);
            report_rows();
            return;
        }
        await_launches();
        const bool wide = (u64(x) & 15) == 0;
        if (HELD) {
            wide ? hold<true>(p, x, rows) : hold<false>(p, x, rows);
            report_rows();
        } else if (warp - (COMPUTERS + SENDERS) / 32 >= row_warps(p)) {
        } else if (wide) {
            send_rows<true>(place, x);
        } else {
            send_rows<false>(place, x);
        }
    } else if (((u64(w0) | u64(w1) | u64(w2)) & 15) == 0) {
        send<true>(place, layers, height, memory);
    } else {
        send<false>(place, layers, height, memory);
    }
}
