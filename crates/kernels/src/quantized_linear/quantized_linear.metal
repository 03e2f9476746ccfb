// Linear layers of one input. Memory and order: mod.rs.

// Where the integers of x come from, once the launches ahead have ended: device memory; or a single row, kept in threadgroup memory, 1 as it is, 2 normalised.
template <uint SOURCE, typename T, typename N, uint SIMDGROUPS, uint COUNT>
struct Source {
    typedef StoredIntegers Type;

    template <typename W>
    static Type of(device const T* x, device const N*, constant LaunchParams& p, Here, threadgroup float*, thread const W&) {
        await_launches();
        return StoredIntegers(x, p);
    }
};

template <typename T, typename N, uint SIMDGROUPS, uint COUNT>
struct Source<1, T, N, SIMDGROUPS, COUNT> {
    typedef SharedIntegers Type;

    template <typename W>
    static Type of(device const T* x, device const N*, constant LaunchParams& p, Here here, threadgroup float* memory, thread const W& weights) {
        const SharedIntegers shared(memory + 32, uint(p.chunks));
        constexpr uint STRIDE = SLOTS * 32 * SIMDGROUPS;
        const uint n = 32 * uint(p.chunks);
        auto row = incoming(x, n, p, here, 32 * SIMDGROUPS);
        await_row(row);
        for (uint first = 0; first < n; first += KEPT * STRIDE) {
            const uint k = first + SLOTS * here.thread_index();
            float kept[KEPT][SLOTS];
            do {
#pragma unroll
                for (uint v = 0; v < KEPT; ++v) {
                    row.load_whole(k + v * STRIDE, 0.0f, kept[v]);
                }
            } while (lacks(row, kept));
            if (first == 0) {
                // Behind the row, which would wait for more of them.
                weights.fetch_behind(4096, uint(p.chunks), here.lane);
            }
#pragma unroll
            for (uint v = 0; v < KEPT; ++v) {
                if (first + v * STRIDE < n) {
                    keep(row, k + v * STRIDE, kept[v]);
                    shared.store(k + v * STRIDE, k + v * STRIDE < n, kept[v]);
                }
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        return shared;
    }
};

template <typename T, typename N, uint SIMDGROUPS, uint COUNT>
struct Source<2, T, N, SIMDGROUPS, COUNT> {
    typedef SharedIntegers Type;

    template <typename W>
    static Type of(device const T* x, device const N* weight, constant LaunchParams& p, Here here, threadgroup float* memory, thread const W& weights) {
        weights.fetch_behind(512, uint(p.chunks), here.lane);
        const SharedIntegers shared(memory + 32, uint(p.chunks));
        const uint n = 32 * uint(p.chunks);
        const RowReader<N> factors(weight, 1, p.present & WEIGHTED ? n : 0);
        const auto row = incoming(x, n, p, here, 32 * SIMDGROUPS);
        store_normalised<COUNT, 1>(row, factors, p.epsilon, 32 * SIMDGROUPS, here.simdgroup, here.lane, memory, shared);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        return shared;
    }
};

// COLUMNS neighbours in one layer for each LANES lanes, and ROWS rows.
template <uint GATED, typename T, typename C, uint ROWS, uint COLUMNS, uint LANES>
struct Tile {
    typedef LaneSums<ROWS * COLUMNS, 8> Tree;
    static constexpr constant uint TOGETHER = 32 / LANES * COLUMNS;

    Layer<T, C> layer;
    uint number;
    uint column;

    Tile(Layers<T, C> of, uint tile, uint lane) : layer(of.first), number(0), column(tile) {
        const uint before_second = (of.first.n + TOGETHER - 1) / TOGETHER;
        const uint before_third = before_second + (of.second.n + TOGETHER - 1) / TOGETHER;
        if (tile >= before_third) {
            layer = of.third;
            number = 2;
            column -= before_third;
        } else if (tile >= before_second) {
            layer = of.second;
            number = 1;
            column -= before_second;
        }
        column = TOGETHER * column + lane / LANES * COLUMNS;
    }

    PackedRows<COLUMNS> rows(constant LaunchParams& p) const {
        PackedRows<COLUMNS> rows;
        for (uint c = 0; c < COLUMNS; ++c) {
            rows.at[c] = layer.row(column + c, p);
        }
        return rows;
    }

    void store(float sum, device const float* residual, constant LaunchParams& p, uint row, uint lane) const {
        const uint at = Tree::first(lane), r = row + at / COLUMNS, c = column + at % COLUMNS;
        if (Tree::leads(lane) && lane % LANES < 8 && r < p.m && c < layer.n) {
            const float value = layer.biased(p.present >> number & 1, c, sum);
            const ulong to = ulong(r) * layer.n + c;
            const float result = p.present & RESIDUAL ? residual[to] + value : value;
            layer.y[to] = narrow<T>(result);
            outbox(p).send(c, result);
        }
    }
};

// An element of the gate and the same of the factor for each LANES lanes.
template <typename T, typename C, uint ROWS, uint LANES>
struct Tile<1, T, C, ROWS, 2, LANES> {
    typedef LaneSums<ROWS * 2, 8> Tree;

    Layer<T, C> gate;
    Layer<T, C> factor;
    uint column;

    Tile(Layers<T, C> of, uint tile, uint lane) : gate(of.first), factor(of.second), column(32 / LANES * tile + lane / LANES) {}

    PackedRows<2> rows(constant LaunchParams& p) const {
        PackedRows<2> rows = {{gate.row(column, p), factor.row(column, p)}};
        return rows;
    }

    void store(float sum, device const float*, constant LaunchParams& p, uint row, uint lane) const {
        const uint at = Tree::first(lane), r = row + at / 2, c = min(column, gate.n - 1);
        const float value = at % 2 == 0 ? gate.biased(p.present & 1, c, sum) : factor.biased(p.present & 2, c, sum);
        const float other = simd_shuffle_xor(value, ushort(Tree::SHARING));
        if (Tree::leads(lane) && lane % LANES < 8 && at % 2 == 0 && r < p.m && column < gate.n) {
            const float result = strict::gate(value, 1.0f) * other;
            gate.y[ulong(r) * gate.n + column] = narrow<T>(result);
            outbox(p).send(column, result);
        }
    }
};

// Compiled for more threads than a threadgroup has, so that registers are left for two of them on a unit.
template <typename F, typename T, typename N, typename C, uint SOURCE, uint GATED, uint ROWS, uint COLUMNS, uint LANES, uint SIMDGROUPS, uint COUNT>
[[kernel, max_total_threads_per_threadgroup(512)]] void quantized_linear(
    device const T* x [[buffer(0)]],
    device const uchar* w0 [[buffer(1)]],
    device const uchar* w1 [[buffer(2)]],
    device const uchar* w2 [[buffer(3)]],
    device const C* b0 [[buffer(4)]],
    device const C* b1 [[buffer(5)]],
    device const C* b2 [[buffer(6)]],
    device const N* norm [[buffer(7)]],
    device const float* residual [[buffer(8)]],
    device T* y0 [[buffer(9)]],
    device T* y1 [[buffer(10)]],
    device T* y2 [[buffer(11)]],
    constant LaunchParams& p [[buffer(12)]],
    threadgroup float* memory [[threadgroup(0)]],
    uint index [[threadgroup_position_in_grid]],
    uint count [[threadgroups_per_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    typedef Tile<GATED, T, C, ROWS, COLUMNS, LANES> Part;
    typedef typename Source<SOURCE, T, N, SIMDGROUPS, COUNT>::Type X;
    // Those that have the same weights are neighbours, so that they read them from the caches.
    const uint row_tiles = ROWS == 1 ? 1 : (uint(p.m) + ROWS - 1) / ROWS, group = index / row_tiles, groups = count / row_tiles;
    const uint row = index % row_tiles * ROWS, chunks = uint(p.chunks), tiles = uint(p.tiles);
    const Layers<T, C> layers = {{w0, b0, y0, uint(p.n[0])}, {w1, b1, y1, uint(p.n[1])}, {w2, b2, y2, uint(p.n[2])}};
    // Threadgroups take neighbouring tiles, so that all have as many, or one less.
    const uint step = groups * SIMDGROUPS;
    uint number = simdgroup * groups + group;
    BlockTile<F, X, ROWS, COLUMNS, LANES> tile;
    PackedRows<COLUMNS> rows;
    tile.wide = false;
    // A tile's first weights are in flight while the launches ahead end and the row is made ready, or the tile before is finished.
    if (number < tiles) {
        rows = Part(layers, number, lane).rows(p);
        tile.start(rows, chunks, lane);
    }
    const X integers = Source<SOURCE, T, N, SIMDGROUPS, COUNT>::of(x, norm, p, {index, count, simdgroup, lane}, memory, tile);
    while (number < tiles) {
        const Part part(layers, number, lane);
        number += step;
        if (number < tiles) {
            rows = Part(layers, number, lane).rows(p);
        }
        tile.fold_rows(integers, row, chunks, lane, number < tiles, rows);
        part.store(tile.total(lane), residual, p, row, lane);
    }
}
