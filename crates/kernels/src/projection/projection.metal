// Linear layers of one input, each output element a strict dot product: of the rows as they are, or normalised first.
//
// A simdgroup makes tiles of ROWS x COLUMNS elements in registers, as matmul.metal; COLUMNS are neighbours in one weight or, gated, the gate and the
// factor of one element. Memory: the weights are read once, and from the caches for every ROWS rows after the first. A single row is read by every
// threadgroup, through the caches, and stays in its memory, normalised or as it is. Order: rms_norm.metal for the norm, dot.metal or, fixed, dot/tile.metal for the products.

typedef DELIVERING(Params) LaunchParams;

constant constexpr uint PROJECTION_SIMDGROUPS = 8;
// Bits of Params::present, after those of the biases.
constant constexpr uint WEIGHTED = 8;
constant constexpr uint RESIDUAL = 16;

// Where a normalised row of n elements goes.
template <bool FIXED>
struct NormalisedTo {
    SharedRow row;
    uint n;

    NormalisedTo(threadgroup float4* memory, uint n) : row({memory}), n(n) {}

    void store(uint k, bool exists, thread float (&values)[SLOTS]) const {
        if (k + SLOTS > n) {
            for (uint i = 0; i < SLOTS; ++i) {
                values[i] = k + i < n ? values[i] : -0.0f;
            }
        }
        if (exists) {
            row.store(k, values);
        }
    }

    void fill(uint) const {}
};

template <>
struct NormalisedTo<true> {
    FixedRow row;
    uint n;

    NormalisedTo(threadgroup float4* memory, uint n) : row(memory, n), n(n) {}

    void store(uint k, bool exists, thread const float (&values)[SLOTS]) const {
        const LeftPiece<1> piece = left_eight<float>(values);
        if (exists) {
            row.store(k, piece);
        }
    }

    void fill(uint thread_index) const { row.fill(n, thread_index, 32 * PROJECTION_SIMDGROUPS); }
};

// Where the rows of x come from, once the launches ahead have ended: device memory; or a single row from threadgroup memory, 1 as it is, 2 normalised.
template <uint SOURCE, typename N, bool FIXED, uint COUNT>
struct Rows {
    typedef Lines<float> Type;

    static Type of(device const float* x, device const N*, constant LaunchParams& p, uint row, Here, threadgroup float*) {
        await_launches();
        return Lines<float>(x + ulong(row) * p.k, long(p.k), 1, uint(p.m) - row);
    }
};

template <typename N, bool FIXED, uint COUNT>
struct Rows<1, N, FIXED, COUNT> {
    typedef KeptRow<FIXED> Kept;
    typedef typename Kept::Type Type;

    static Type of(device const float* x, device const N*, constant LaunchParams& p, uint, Here here, threadgroup float* memory) {
        constexpr uint THREADS = 32 * PROJECTION_SIMDGROUPS;
        const auto row = incoming(x, uint(p.k), p, here, THREADS);
        await_row(row);
        return Kept::share(row, uint(p.k), here.thread_index(), THREADS, reinterpret_cast<threadgroup float4*>(memory + 32));
    }
};

template <typename N, bool FIXED, uint COUNT>
struct Rows<2, N, FIXED, COUNT> {
    typedef typename KeptRow<FIXED>::Type Type;

    // The pieces of a thread, but two at most.
    static constexpr constant uint AHEAD = COUNT * KEPT > 32 * PROJECTION_SIMDGROUPS ? 2 : 1;

    static Type of(device const float* x, device const N* weight, constant LaunchParams& p, uint, Here here, threadgroup float* memory) {
        constexpr uint THREADS = 32 * PROJECTION_SIMDGROUPS;
        const NormalisedTo<FIXED> to(reinterpret_cast<threadgroup float4*>(memory + 32), uint(p.k));
        RowReader<N> factors(weight, 1, p.present & WEIGHTED ? p.k : 0);
        factors.wide = factors.wide && p.k % SLOTS == 0;
        const auto row = incoming(x, uint(p.k), p, here, THREADS);
        store_normalised<COUNT, AHEAD>(row, factors, p.epsilon, THREADS, here.simdgroup, here.lane, memory, to);
        to.fill(here.thread_index());
        threadgroup_barrier(mem_flags::mem_threadgroup);
        return to.row;
    }
};

// The weight, the bias and the output of a layer.
template <typename W, typename C>
struct Layer {
    device const W* weight;
    device const C* bias;
    device float* y;
    uint n;

    float biased(bool has_bias, uint column, float sum) const { return has_bias ? sum + widen(bias[column]) : sum; }
};

// The layers of a launch.
template <typename W, typename C>
struct Layers {
    Layer<W, C> first;
    Layer<W, C> second;
    Layer<W, C> third;
};

// COLUMNS neighbours in one layer, for ROWS rows.
template <uint GATED, typename W, typename C, uint ROWS, uint COLUMNS>
struct Tile {
    typedef LaneSums<ROWS * COLUMNS, 32> Tree;
    typedef Lines<W> Right;

    Layer<W, C> layer;
    uint number;
    uint column;

    Tile(Layers<W, C> of, uint tile) : layer(of.first), number(0), column(tile) {
        const uint before_second = (of.first.n + COLUMNS - 1) / COLUMNS;
        const uint before_third = before_second + (of.second.n + COLUMNS - 1) / COLUMNS;
        if (tile >= before_third) {
            layer = of.third;
            number = 2;
            column -= before_third;
        } else if (tile >= before_second) {
            layer = of.second;
            number = 1;
            column -= before_second;
        }
        column *= COLUMNS;
    }

    Right lines(uint k) const { return Right(layer.weight + ulong(column) * k, k, 1, layer.n - column); }

    void store(float sum, device const float* residual, constant LaunchParams& p, uint row, uint lane) const {
        const uint at = Tree::first(lane), r = row + at / COLUMNS, c = column + at % COLUMNS;
        if (Tree::leads(lane) && r < p.m && c < layer.n) {
            const float value = layer.biased(p.present >> number & 1, c, sum);
            const ulong to = ulong(r) * layer.n + c;
            const float result = p.present & RESIDUAL ? residual[to] + value : value;
            layer.y[to] = result;
            outbox(p).send(c, result);
        }
    }
};

// Neighbouring elements of the gate, each beside the same of the factor.
template <typename W, typename C, uint ROWS, uint COLUMNS>
struct Tile<1, W, C, ROWS, COLUMNS> {
    typedef LaneSums<ROWS * COLUMNS, 32> Tree;
    typedef Scattered<W, COLUMNS> Right;

    Layer<W, C> gate;
    Layer<W, C> factor;
    uint column;

    Tile(Layers<W, C> of, uint tile) : gate(of.first), factor(of.second), column(tile * (COLUMNS / 2)) {}

    Right lines(uint k) const {
        Right lines;
        lines.wide = true;
        for (uint i = 0; i < COLUMNS; ++i) {
            // Columns beyond the end are taken for the last one.
            lines.lines[i] = (i % 2 == 0 ? gate : factor).weight + ulong(min(column + i / 2, gate.n - 1)) * k;
            lines.wide = lines.wide && is_wide(lines.lines[i]);
        }
        return lines;
    }

    void store(float sum, device const float*, constant LaunchParams& p, uint row, uint lane) const {
        const uint at = Tree::first(lane), r = row + at / COLUMNS, c = column + at % COLUMNS / 2, biased = min(c, gate.n - 1);
        const float value = at % 2 == 0 ? gate.biased(p.present & 1, biased, sum) : factor.biased(p.present & 2, biased, sum);
        const float other = simd_shuffle_xor(value, ushort(Tree::SHARING));
        if (Tree::leads(lane) && at % 2 == 0 && r < p.m && c < gate.n) {
            const float result = strict::gate(value, 1.0f) * other;
            gate.y[ulong(r) * gate.n + c] = result;
            outbox(p).send(c, result);
        }
    }
};

template <typename N, typename W, typename C, uint SOURCE, uint GATED, uint ROWS, uint COLUMNS, uint FIXED, uint COUNT>
[[kernel, max_total_threads_per_threadgroup(256)]] void projection(
    device const float* x [[buffer(0)]],
    device const N* norm [[buffer(1)]],
    device const W* w0 [[buffer(2)]],
    device const W* w1 [[buffer(3)]],
    device const W* w2 [[buffer(4)]],
    device const C* b0 [[buffer(5)]],
    device const C* b1 [[buffer(6)]],
    device const C* b2 [[buffer(7)]],
    device const float* residual [[buffer(8)]],
    device float* y0 [[buffer(9)]],
    device float* y1 [[buffer(10)]],
    device float* y2 [[buffer(11)]],
    constant LaunchParams& p [[buffer(12)]],
    threadgroup float* memory [[threadgroup(0)]],
    uint index [[threadgroup_position_in_grid]],
    uint count [[threadgroups_per_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    typedef Tile<GATED, W, C, ROWS, COLUMNS> Part;
    constexpr bool is_fixed = IsFixed<FIXED, float, W>::value;
    typedef Rows<SOURCE, N, is_fixed, COUNT> Source;
    typedef typename Source::Type X;
    // Those that have the same weights are neighbours, so that they read them from the caches.
    const uint row_tiles = ROWS == 1 ? 1 : (uint(p.m) + ROWS - 1) / ROWS, row = index % row_tiles * ROWS, k = uint(p.k);
    const Layers<W, C> layers = {{w0, b0, y0, uint(p.n[0])}, {w1, b1, y1, uint(p.n[1])}, {w2, b2, y2, uint(p.n[2])}};
    const uint step = p.groups * PROJECTION_SIMDGROUPS;
    uint number = index / row_tiles * PROJECTION_SIMDGROUPS + simdgroup;
    typename Dots<is_fixed, X, typename Part::Right, ROWS, COLUMNS>::Tile dots;
    // A tile's first weights are in flight while the launches ahead end and the row is made ready, or the tile before is finished.
    if (number < p.tiles) {
        dots.start(Part(layers, number).lines(k), k, lane);
    }
    const X rows = Source::of(x, norm, p, row, {index, count, simdgroup, lane}, memory);
    while (number < p.tiles) {
        const Part tile(layers, number);
        const uint next = number + step;
        const bool more = next < p.tiles;
        dots.fold_lines(rows, k, lane, more, Part(layers, more ? next : number).lines(k));
        number = next;
        tile.store(dots.total(lane), residual, p, row, lane);
    }
}
