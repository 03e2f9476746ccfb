// Strict products of one or two rows where neighbours in b belong to neighbouring columns of y (b is [k, n], row-major).
//
// A threadgroup makes ROWS x 32 elements of y: simdgroup l has the eight accumulators of lane l of the canonical order, a thread those of one column.
// The tree over lanes goes through threadgroup memory. Memory: b is read once, 32 neighbours at a time; a's elements are the same for a simdgroup.

template <typename A, typename B, typename C, typename Y, uint ROWS>
[[kernel]] void matmul_across(
    device const A* a [[buffer(0)]],
    device const B* b [[buffer(1)]],
    device const C* bias [[buffer(2)]],
    device Y* y [[buffer(3)]],
    constant Params& p [[buffer(4)]],
    threadgroup float* sums [[threadgroup(0)]],
    uint index [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const Place place(p, index, ROWS, 32);
    const uint m = uint(p.m), n = uint(p.n), end = uint(p.k);
    const Lines<A> rows = lines(p, p.a, a, place.batch, place.row, m);
    const Lines<B> columns = lines(p, p.b, b, place.batch, place.column, n);

    float slots[ROWS][SLOTS];
    for (uint i = 0; i < ROWS * SLOTS; ++i) {
        slots[i / SLOTS][i % SLOTS] = 0.0f;
    }
    for (uint k = simdgroup * SLOTS; k < end; k += 32 * SLOTS) {
        float w[SLOTS], x[SLOTS];
        columns.load(lane, k, end, 0.0f, w);
        for (uint r = 0; r < ROWS; ++r) {
            // -0 times +0 changes no accumulator.
            rows.load(r, k, end, -0.0f, x);
            for (uint i = 0; i < SLOTS; ++i) {
                slots[r][i] = fma(x[i], w[i], slots[r][i]);
            }
        }
    }
    for (uint r = 0; r < ROWS; ++r) {
        sums[(simdgroup * ROWS + r) * 32 + lane] = combine_slots<Add>(slots[r]);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    const uint row = place.row + simdgroup, column = place.column + lane;
    if (simdgroup >= ROWS || column >= n) {
        return;
    }
    float parts[32];
    for (uint i = 0; i < 32; ++i) {
        parts[i] = sums[(i * ROWS + simdgroup) * 32 + lane];
    }
    for (uint half_count = 16; half_count > 0; half_count /= 2) {
        for (uint i = 0; i < half_count; ++i) {
            parts[i] += parts[i + half_count];
        }
    }
    finish(p, bias, y, place, row, column, parts[0]);
}
