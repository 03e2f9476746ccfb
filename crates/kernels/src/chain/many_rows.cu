// Products of any number of rows: a tile has 128, 64 for each of two warpgroups. A thread sends for pieces of k. The thread blocks of a cluster have the same rows
// of matrices: each sends for some of them, to both. Where ranks of a group gather the results, three warps push them.
//
// Macro beside those of tiles.cu: CLUSTER (thread blocks of one, 1 or 2).

constexpr u32 COMPUTERS = 256, GROUP = 128, PUSHERS = GROUP - 32, BLOCK = 128;
// Registers of a thread: of 168, those that send leave some to those that compute.
constexpr u32 TO_SEND = PUSHES ? 72 : 40, TO_COMPUTE = PUSHES ? 216 : 232;
// Maps of a thread block: of the matrices, and of the rows.
constexpr u32 ROW_MAP = 3, MAPS = 4;
constexpr u32 HALF = EIGHTS / 2 * ATOM, ROWS = BLOCK / 8 * ATOM, STAGE = 2 * HALF + ROWS;

// A place of the ring in shared memory: a panel of matrices, then those of rows.
struct Place {
    u32 barriers;
    u32 memory;
    u32 stages;
    u32 stage;
    u32 parity;

    DEVICE u32 full() const { return barriers + 16 * stage; }
    DEVICE u32 empty() const { return full() + 8; }
    DEVICE u32 columns() const { return memory + stage * STAGE; }
    DEVICE u32 rows() const { return columns() + 2 * HALF; }

    DEVICE void advance() {
        if (++stage == stages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// A half of a tile's rows of matrices: the matrix, and the first of them.
struct Half {
    u32 number;
    u32 first;

    DEVICE Half(const Tile& tile, u32 half, u32 height) : number(height < COLUMNS ? half : tile.number), first(tile.first + (height < COLUMNS ? 0 : half * (COLUMNS / 2))) {}
};

// By a warp: the maps of a thread block, by way of shared memory.
DEVICE void make_maps(unsigned char* maps, u32 shared, const ELEMENT* x, const Layer (&layers)[3], const ChainProduct& p) {
    const u32 lane = threadIdx.x % 32;
    const ELEMENT* matrix = lane == 0 ? layers[0].w : lane == 1 ? layers[1].w : lane == 2 ? layers[2].w : x;
    const u64 n = lane == 0 ? p.n[0] : lane == 1 ? p.n[1] : lane == 2 ? p.n[2] : p.m;
    if (lane < MAPS && n > 0) {
        make_map(shared + MAP * lane, Mapped<2>{matrix, {u32(p.k), u32(n)}, {2 * p.k}, lane == ROW_MAP ? BLOCK : COLUMNS / 2});
    }
    __syncwarp();
#pragma unroll
    for (u32 i = 0; i < MAPS; ++i) {
        if (i == ROW_MAP || p.n[i % 3] > 0) {
            publish_map(maps + MAP * i, shared + MAP * i);
            await_map(maps + MAP * i);
        }
    }
}

// By a warp. MAPPED: there are maps of the matrices and, after them, of the rows.
template <bool MAPPED>
DEVICE void send(Place place, const ELEMENT* x, const unsigned char* maps, const Layer (&layers)[3], const ChainProduct& p, u32 height) {
    const u32 lane = threadIdx.x % 32;
    for (u32 index = blockIdx.x; index < p.ends[2] * p.blocks; index += gridDim.x) {
        const Tile tile(p, layers, index, height);
        for (u32 piece = 0; piece < p.pieces; ++piece, place.advance()) {
            wait(place.empty(), place.parity ^ 1);
            if constexpr (!MAPPED) {
                for (u32 i = lane; i < COLUMNS * 8; i += 32) {
                    const u32 column = i / 8, unit = i % 8;
                    const Half half(tile, column / (COLUMNS / 2), height);
                    const Layer& layer = half.number == 0 ? layers[0] : half.number == 1 ? layers[1] : layers[2];
                    const ELEMENT* from = layer.w + min(u64(half.first + column % (COLUMNS / 2)), layer.n - 1) * p.k + piece * PANEL + unit * 8;
                    copy_unit<false>(place.columns() + column * 128 + (unit ^ column % 8) * 16, from);
                }
                for (u32 i = lane; i < BLOCK * 8; i += 32) {
                    const u32 row = i / 8, unit = i % 8;
                    copy_unit<false>(place.rows() + row * 128 + (unit ^ row % 8) * 16, x + min(tile.row + row, p.m - 1) * p.k + piece * PANEL + unit * 8);
                }
                asm volatile("fence.proxy.async;" ::: "memory");
                __syncwarp();
            }
            if (lane == 0) {
                expect(place.full(), MAPPED ? ROWS + 2 * HALF : 0);
                if constexpr (MAPPED) {
                    copy_box(place.rows(), maps + MAP * ROW_MAP, piece * PANEL, u32(tile.row), place.full());
#pragma unroll
                    for (u32 h = 0; h < 2; ++h) {
                        if (CLUSTER == 1 || h == blockIdx.x % CLUSTER) {
                            const Half half(tile, h, height);
                            copy_box_to_all(place.columns() + h * HALF, maps + MAP * half.number, piece * PANEL, half.first, place.full(), CLUSTER);
                        }
                    }
                }
            }
            __syncwarp();
        }
    }
}

// One of four.
DEVICE float chosen(const float* four, u32 i) {
    const float first = i % 2 ? four[1] : four[0], second = i % 2 ? four[3] : four[2];
    return i < 2 ? first : second;
}

// Any tile. One copy of the code for all i: with four the kernel is four times as long.
DEVICE void store_tile(const float (&sums)[4 * EIGHTS], const ChainProduct& p, const Tile& tile, bool gated, const void* up_bias, const float* residual) {
#pragma unroll 1
    for (u32 i = 0; i < 4; ++i) {
        const u64 row = tile.row + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + i / 2 * 8;
#pragma unroll
        for (u32 eight = 0; eight < EIGHTS; ++eight) {
            const u64 column = tile.first + 8 * eight + threadIdx.x % 4 * 2 + i % 2;
            if (row >= p.m || column >= tile.layer.n || (gated && eight >= EIGHTS / 2)) {
                continue;
            }
            float value = chosen(sums + 4 * eight, i);
            if (p.present >> tile.number & 1) {
                value += load_as(tile.layer.bias, p.bias, column);
            }
            if (gated && eight < EIGHTS / 2) {
                const float up = chosen(sums + 4 * (eight + EIGHTS / 2) % (4 * EIGHTS), i);
                value = gate(value, p.present & 2 ? up + load_as(up_bias, p.bias, column) : up);
            }
            const u64 at = row * tile.layer.n + column;
            store_result(p, tile.layer.y, at, residual ? residual[at] + value : value);
        }
    }
}

// A tile's results are there, those of the one before pushed: for the threads that compute and those that push.
DEVICE void meet_pushers() { asm volatile("bar.sync 1, %0;" ::"n"(COMPUTERS + PUSHERS) : "memory"); }

// Results of a tile that this thread block has stored, in units of T, to all ranks.
template <typename T>
DEVICE void push_tile(const ChainProduct& p, const Tile& tile, u32 height, u32 size, const Peers& peers) {
    constexpr u32 AHEAD = 4;    // So many that are read before some are written.
    const u32 units = u32(min(u64(height), tile.layer.n - tile.first) * size / sizeof(T)), width = u32(tile.layer.n * size / sizeof(T));
    const u32 thread = threadIdx.x - (COMPUTERS + 32), each = min(units, PUSHERS), rows = PUSHERS / each;
    if (thread >= rows * each) {
        return;
    }
    for (u32 unit = thread % each; unit < units; unit += each) {
        const u32 at = tile.first * size / sizeof(T) + unit;
        for (u64 first = tile.row + thread / each; first < min(tile.row + BLOCK, p.m); first += AHEAD * rows) {
            const T* const from = reinterpret_cast<const T*>(tile.layer.y) + first * width + at;
            const u64 to = (first * p.push.ranks + p.push.rank) * width + at;
            const u32 count = u32(min(tile.row + BLOCK, p.m) - first + rows - 1) / rows;
            T held[AHEAD];
#pragma unroll
            for (u32 a = 0; a < AHEAD; ++a) {
                if (a < count) {
                    held[a] = from[a * rows * width];
                }
            }
#pragma unroll 1
            for (u32 rank = 0; rank < p.push.ranks; ++rank) {
                T* const whole = reinterpret_cast<T*>(peers.whole(rank)) + to;
#pragma unroll
                for (u32 a = 0; a < AHEAD; ++a) {
                    if (a < count) {
                        whole[a * rows * p.push.ranks * width] = held[a];
                    }
                }
            }
        }
    }
}

// By the threads that push: tiles, while the next ones are multiplied.
DEVICE void push_tiles(const Layer (&layers)[3], const ChainProduct& p, u32 height, const Peers& peers) {
    const u32 thread = threadIdx.x - (COMPUTERS + 32), size = p.present & ROUNDED ? sizeof(ELEMENT) : sizeof(float);
    if (blockIdx.x == 0) {
        peers.announce(thread);
    }
    // Each warp asks.
    const bool has_room = __all_sync(~0u, peers.await_room(thread % 32));
    const bool wide = layers[0].n * size % 16 == 0 && height * size % 16 == 0 && (u64(layers[0].y) | u64(peers.whole(p.push.rank))) % 16 == 0;
    for (u32 index = blockIdx.x; index < p.ends[2] * p.blocks; index += gridDim.x) {
        const Tile tile(p, layers, index, height);
        meet_pushers();
        if (!has_room) {
        } else if (wide) {
            push_tile<uint4>(p, tile, height, size, peers);
        } else {
            push_tile<unsigned short>(p, tile, height, size, peers);
        }
    }
    asm volatile("bar.sync 2, %0;" ::"n"(PUSHERS) : "memory");
    if (thread < 32) {
        peers.finish(thread);
    }
}

DEVICE void compute(Place place, const Layer (&layers)[3], const ChainProduct& p, u32 height, const float* residual) {
    const u32 group = threadIdx.x / GROUP, thread = threadIdx.x % GROUP;
    const auto release = [&](u32 barrier) {
        if (thread < CLUSTER) {
            arrive_in(thread, barrier);
        }
    };
    for (u32 index = blockIdx.x; index < p.ends[2] * p.blocks; index += gridDim.x) {
        float sums[4 * EIGHTS] = {};
        settle(sums);
        u32 before = 0;
        for (u32 piece = 0; piece < p.pieces; ++piece, place.advance()) {
            wait(place.full(), place.parity);
            const u64 rows = descriptor(place.rows() + group * (ROWS / 2), 16), columns = descriptor(place.columns(), 16);
            begin_products();
#pragma unroll
            for (u32 step = 0; step < STEPS; ++step) {
                multiply<ELEMENT>(sums, rows + 2 * step, columns + 2 * step);
            }
            end_products();
            await_products<1>();
            if (piece > 0) {
                release(before);
            }
            before = place.empty();
        }
        await_products<0>();
        release(before);
        settle(sums);
        const Tile tile(p, layers, index, height);
        const bool wide = ((u64(tile.layer.y) | u64(residual)) & 7) == 0 && tile.layer.n % 8 == 0;
        if (wide && (p.present & BIASES) == 0) {
            store_eights(sums, p, tile, height < COLUMNS, residual);
        } else {
            store_tile(sums, p, tile, height < COLUMNS, layers[1].bias, residual);
        }
        if (PUSHES) {
            meet_pushers();
        }
    }
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(COMPUTERS + GROUP, 1) chain_many_rows(
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
    unsigned char* all_maps,
    PEERS_PARAMETERS const __grid_constant__ ChainProduct p FLAG_PARAMETER) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const Peers peers = PEERS(p.push);
    const Layer layers[3] = {{w0, b0, y0, p.n[0]}, {w1, b1, y1, p.n[1]}, {w2, b2, y2, p.n[2]}};
    const u32 base = (shared_address(memory) + ATOM - 1) / ATOM * ATOM;
    const Place place = {base, base + ATOM, p.stages, 0, 0};
    const u32 height = p.present & GATED ? COLUMNS / 2 : COLUMNS;
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < p.stages; ++i) {
            init(place.barriers + 16 * i, 1);
            init(place.barriers + 16 * i + 8, 2 * CLUSTER);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    meet();
    admit_launches();
    await_launches();
    if (threadIdx.x < COMPUTERS) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(TO_COMPUTE));
        compute(place, layers, p, height, residual);
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(TO_SEND));
        if (threadIdx.x >= COMPUTERS + 32) {
            if (PUSHES) {
                push_tiles(layers, p, height, peers);
            }
        } else if (((u64(w0) | u64(w1) | u64(w2) | u64(x)) & 15) == 0) {
            unsigned char* maps = all_maps + blockIdx.x * 128 * MAPS;
            make_maps(maps, base + ATOM - 128 * MAPS, x, layers, p);
            send<true>(place, x, maps, layers, p, height);
        } else {
            send<false>(place, x, nullptr, layers, p, height);
        }
    }
    __syncwarp();
    leave();
}
