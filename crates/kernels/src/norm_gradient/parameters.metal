// The gradients of a norm's weight and bias from those of shares of its rows, which are added up in the canonical order of rows: a simdgroup has a column.

// Columns of a threadgroup.
constant constexpr uint COLUMNS = 8;

template <typename W>
[[kernel, max_total_threads_per_threadgroup(32 * COLUMNS)]] void norm_parameter_gradient(
    device const float* parts [[buffer(0)]],
    device W* dweight [[buffer(1)]],
    device W* dbias [[buffer(2)]],
    constant Parts& size [[buffer(3)]],
    threadgroup float* lanes [[threadgroup(0)]],
    uint group [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    // Neighbouring threads read neighbouring columns.
    const uint index = 32 * simdgroup + lane, place = index / COLUMNS, count = row_threads(size.count);
    const ulong first = ulong(group) * COLUMNS, column = first + index % COLUMNS;
    float total = 0.0f;
    for (uint start = 0; start < count; start += 32) {
        float slots[SLOTS] = {};
        for (ulong k = SLOTS * (start + place); k < size.count && column < size.width; k += SLOTS * count) {
#pragma unroll
            for (uint i = 0; i < SLOTS; ++i) {
                slots[i] += k + i < size.count ? parts[(k + i) * size.width + column] : 0.0f;
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        lanes[index % COLUMNS * 33 + place] = combine_slots<Add>(slots);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        const float sum = combine_lanes<Add>(lanes[simdgroup * 33 + lane]);
        total = start == 0 ? sum : total + sum;
    }
    const ulong to = first + simdgroup;
    if (lane == 0 && to < size.width) {
        if (to < size.columns) {
            dweight[to] = narrow<W>(total);
        } else {
            dbias[to - size.columns] = narrow<W>(total);
        }
    }
}
