// Linear layers of one input, each output element a strict dot product: of the rows as they are, or normalised first.
//
// A simdgroup makes tiles of ROWS x COLUMNS elements in registers, as matmul.metal; COLUMNS are neighbours in one weight or, gated, the gate and the
// factor of one element. Memory: the weights are read once, and from the caches for every ROWS rows after the first. A single row is read by every
// threadgroup, through the caches, and stays in its memory, normalised or as it is. Order: rms_norm.metal for the norm, dot.metal or, fixed, dot/tile.metal for the products.

constant constexpr uint PROJECTION_SIMDGROUPS = 8;
// Bits of Params::present, after those of the biases.
constant constexpr uint WEIGHTED = 8;
constant constexpr uint RESIDUAL = 16;

// Where the rows of x come from, once the launches ahead have ended: device memory; or a single row from threadgroup memory, 1 as it is, 2 normalised.
// It is made before the weights are sent for: what it sends for would come after them.
template <uint SOURCE, typename N, bool FIXED>
struct Rows {
    typedef Lines<float> Type;

    Rows(device const N*, constant Params&, uint, uint) {}

    Type of(device const float* x, constant Params& p, uint row, uint, uint, threadgroup float*) const {
        await_launches();
        return Lines<float>(x + ulong(row) * p.k, long(p.k), 1, uint(p.m) - row);
    }
};

template <typename N, bool FIXED>
struct Rows<1, N, FIXED> {
    typedef KeptRow<FIXED> Kept;
    typedef typename Kept::Type Type;

    Rows(device const N*, constant Params&, uint, uint) {}

    Type of(device const float* x, constant Params& p, uint row, uint simdgroup, uint lane, threadgroup float* memory) const {
        await_launches();
        const uint k = uint(p.k);
        const RowReader<float> from(x + ulong(row) * k, 1, k);
        return Kept::share(from, k, 32 * simdgroup + lane, 32 * PROJECTION_SIMDGROUPS, reinterpret_cast<threadgroup float4*>(memory + 32));
    }
};

template <typename N>
struct Rows<2, N, false> {
    typedef SharedRow Type;

    NormalisedRow<N> norm;

    Rows(device const N* weight, constant Params& p, uint simdgroup, uint lane)
        : norm(weight, uint(p.k), p.present & WEIGHTED, 32 * PROJECTION_SIMDGROUPS, simdgroup, lane) {}

    Type of(device const float* x, constant Params& p, uint row, uint, uint, threadgroup float* memory) const {
        const SharedRow shared = {reinterpret_cast<threadgroup float4*>(memory + 32)};
        float kept[KEPT][SLOTS];
        norm.elements(x + ulong(row) * p.k, p.epsilon, memory, kept);
        for (uint v = 0; v < KEPT; ++v) {
            if (norm.owns(v)) {
                shared.store(norm.place(v), kept[v]);
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        return shared;
    }
};

template <typename N>
struct Rows<2, N, true> {
    typedef FixedRow Type;

    NormalisedRow<N> norm;

    Rows(device const N* weight, constant Params& p, uint simdgroup, uint lane)
        : norm(weight, uint(p.k), p.present & WEIGHTED, 32 * PROJECTION_SIMDGROUPS, simdgroup, lane) {}

    Type of(device const float* x, constant Params& p, uint row, uint simdgroup, uint lane, threadgroup float* memory) const {
        const FixedRow shared(reinterpret_cast<threadgroup float4*>(memory + 32), uint(p.k));
        float kept[KEPT][SLOTS];
        norm.elements(x + ulong(row) * p.k, p.epsilon, memory, kept);
        for (uint v = 0; v < KEPT; ++v) {
            const LeftPiece<1> piece = left_eight<float>(kept[v]);
            if (norm.owns(v)) {
                shared.store(norm.place(v), piece);
            }
        }
        shared.fill(norm.n, 32 * simdgroup + lane, 32 * PROJECTION_SIMDGROUPS);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        return shared;
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

    void store(float sum, device const float* residual, constant Params& p, uint row, uint lane) const {
        const uint at = Tree::first(lane), r = row + at / COLUMNS, c = column + at % COLUMNS;
        if (Tree::leads(lane) && r < p.m && c < layer.n) {
            const float value = layer.biased(p.present >> number & 1, c, sum);
            const ulong to = ulong(r) * layer.n + c;
            layer.y[to] = p.present & RESIDUAL ? residual[to] + value : value;
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

    void store(float sum, device const float*, constant Params& p, uint row, uint lane) const {
        const uint at = Tree::first(lane), r = row + at / COLUMNS, c = column + at % COLUMNS / 2, biased = min(c, gate.n - 1);
        const float value = at % 2 == 0 ? gate.biased(p.present & 1, biased, sum) : factor.biased(p.present & 2, biased, sum);
        const float other = simd_shuffle_xor(value, ushort(Tree::SHARING));
        if (Tree::leads(lane) && at % 2 == 0 && r < p.m && c < gate.n) {
            gate.y[ulong(r) * gate.n + c] = strict::gate(value, 1.0f) * other;
        }
    }
};

template <typename N, typename W, typename C, uint SOURCE, uint GATED, uint ROWS, uint COLUMNS, uint FIXED>
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
    constant Params& p [[buffer(12)]],
    threadgroup float* memory [[threadgroup(0)]],
    uint index [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    typedef Tile<GATED, W, C, ROWS, COLUMNS> Part;
    constexpr bool is_fixed = IsFixed<FIXED, float, W>::value;
    typedef Rows<SOURCE, N, is_fixed> Source;
    typedef typename Source::Type X;
    // Those that have the same weights are neighbours, so that they read them from the caches.
    const uint row_tiles = ROWS == 1 ? 1 : (uint(p.m) + ROWS - 1) / ROWS, row = index % row_tiles * ROWS, k = uint(p.k);
    const Layers<W, C> layers = {{w0, b0, y0, uint(p.n[0])}, {w1, b1, y1, uint(p.n[1])}, {w2, b2, y2, uint(p.n[2])}};
    const uint step = p.groups * PROJECTION_SIMDGROUPS;
    uint number = index / row_tiles * PROJECTION_SIMDGROUPS + simdgroup;
    const Source source(norm, p, simdgroup, lane);
    typename Dots<is_fixed, X, typename Part::Right, ROWS, COLUMNS>::Tile dots;
    // A tile's first weights are in flight while the launches ahead end and the row is made ready, or the tile before is finished.
    if (number < p.tiles) {
        dots.start(Part(layers, number).lines(k), k, lane);
    }
    const X rows = source.of(x, p, row, simdgroup, lane, memory);
    while (number < p.tiles) {
        const Part tile(layers, number);
        const uint next = number + step;
        const bool more = next < p.tiles;
        dots.fold_lines(rows, k, lane, more, Part(layers, more ? next : number).lines(k));
        number = next;
        tile.store(dots.total(lane), residual, p, row, lane);
    }
}
