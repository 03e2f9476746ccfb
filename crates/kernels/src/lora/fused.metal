// The whole of y = round((x W^T + bias) + scale (x A^T) B^T) for one row of x, strict: every threadgroup makes x A^T for itself, a simdgroup a row
// of A beside its line of W. Memory: W once from memory, A once for each threadgroup from the caches. Order: dot.metal.

constant constexpr uint FUSED_SIMDGROUPS = 8;

// x A^T, in threadgroup memory.
struct Projected {
    typedef float Element;
    static constexpr constant bool wide = true;

    threadgroup const float* values;

    void load(uint, uint k, thread float* slots) const {
        for (uint i = 0; i < SLOTS; ++i) {
            slots[i] = values[k + i];
        }
    }

    void load(uint, uint k, uint n, float other, thread float* slots) const {
        for (uint i = 0; i < SLOTS; ++i) {
            slots[i] = k + i < n ? values[k + i] : other;
        }
    }
};

template <typename X, typename W, typename B, typename C, uint FIXED>
[[kernel, max_total_threads_per_threadgroup(256)]] void lora_fused(
    device const X* x [[buffer(0)]],
    device const W* weight [[buffer(1)]],
    device const W* a [[buffer(2)]],
    device const B* b [[buffer(3)]],
    device const C* bias [[buffer(4)]],
    device X* y [[buffer(5)]],
    constant Params& p [[buffer(6)]],
    threadgroup float* projected [[threadgroup(0)]],
    uint index [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const uint n = uint(p.n), k = uint(p.k), rank = uint(p.r);
    // Columns beyond the end are taken for the last one.
    const uint column = index * FUSED_SIMDGROUPS + simdgroup;
    const ulong line = min(column, n - 1);
    const Lines<X> row = row_major(x, k, 0, 1);
    const bool wide = is_wide(weight) && is_wide(a) && k % (16 / sizeof(W)) == 0;
    constexpr bool is_fixed = IsFixed<FIXED, X, W>::value;
    typename Dots<IsFixed<FIXED, float, B>::value, Projected, Lines<B>, 1, 1, 1>::Tile adapter;
    float sum;
    if (simdgroup < rank) {
        const Scattered<W, 2> both = {{weight + line * k, a + simdgroup * k}, wide};
        typename Dots<is_fixed, Lines<X>, Scattered<W, 2>, 1, 2>::Tile tile;
        tile.start(both, k, lane);
        await_launches();
        adapter.start(row_major(b, rank, uint(line), n), rank, lane);
        sum = tile.finish(row, k, lane);
        if (lane == 16) {
            projected[simdgroup] = sum;
        }
    } else {
        typename Dots<is_fixed, Lines<X>, Lines<W>, 1, 1>::Tile tile;
        tile.start(row_major(weight, k, uint(line), n), k, lane);
        await_launches();
        adapter.start(row_major(b, rank, uint(line), n), rank, lane);
        sum = tile.finish(row, k, lane);
    }
    for (uint r = simdgroup + FUSED_SIMDGROUPS; r < rank; r += FUSED_SIMDGROUPS) {
        typename Dots<is_fixed, Lines<X>, Lines<W>, 1, 1>::Tile projection;
        const float t = projection.product(row, row_major(a, k, r, rank), k, lane);
        if (lane == 0) {
            projected[r] = t;
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    const Projected factors = {projected};
    const float delta = adapter.finish(factors, rank, lane);
    if (lane == 0 && column < n) {
        finish(p, bias, y, 0, column, sum, delta * p.scale);
    }
}
