// Weighted sums of values: a simdgroup takes ROWS rows of weights that share values, and COLUMNS elements a lane. A lane loads one weight of a
// group of 32 keys for each row and hands it round, so that each value is read once for ROWS rows.
//
// Order: see the operator. Keys with a weight of zero are passed over, whatever their values hold.

constant constexpr uint ROWS = 8;
constant constexpr uint COLUMNS = 4;
constant constexpr uint GROUP = 32;

inline ulong start_of(constant View& view, uint batch, uint head, uint token) {
    return view.origin + batch * ulong(view.batch) + head * ulong(view.head) + token * ulong(view.token);
}

template <typename P, typename V>
[[kernel]] void weighted_sum(
    device const P* p [[buffer(0)]],
    device const V* v [[buffer(1)]],
    device P* y [[buffer(2)]],
    constant Params& params [[buffer(3)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint simdgroups [[simdgroups_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const uint keys = uint(params.keys), width = uint(params.width), queries = uint(params.queries), heads = uint(params.heads);
    const uint batch = group.z, value_head = group.y, shared = heads / uint(params.kv_heads), count = queries * shared;
    const uint tiles = (width + 32 * COLUMNS - 1) / (32 * COLUMNS);
    const uint first_row = (group.x / tiles * simdgroups + simdgroup) * ROWS, first_column = group.x % tiles * 32 * COLUMNS + lane;

    float sums[ROWS][COLUMNS] = {};
    for (uint first = 0; first < keys; first += GROUP) {
        float weights[ROWS] = {};
        for (uint r = 0; r < ROWS; ++r) {
            const uint row = first_row + r;
            if (row < count && first + lane < keys) {
                weights[r] = widen(p[start_of(params.p, batch, value_head * shared + row % shared, row / shared) + first + lane]);
            }
        }
        float group_sums[ROWS][COLUMNS] = {};
        for (uint j = 0; j < min(GROUP, keys - first); ++j) {
            device const V* value = v + start_of(params.v, batch, value_head, first + j);
            float values[COLUMNS];
            for (uint c = 0; c < COLUMNS; ++c) {
                const uint column = first_column + 32 * c;
                values[c] = column < width ? widen(value[column]) : 0.0f;
            }
            for (uint r = 0; r < ROWS; ++r) {
                const float weight = simd_shuffle(weights[r], ushort(j));
                for (uint c = 0; c < COLUMNS; ++c) {
                    group_sums[r][c] = weight != 0.0f ? fma(weight, values[c], group_sums[r][c]) : group_sums[r][c];
                }
            }
        }
        for (uint r = 0; r < ROWS; ++r) {
            for (uint c = 0; c < COLUMNS; ++c) {
                sums[r][c] += group_sums[r][c];
            }
        }
    }
    for (uint r = 0; r < ROWS; ++r) {
        const uint row = first_row + r;
        const ulong to = ((ulong(batch) * heads + value_head * shared + row % shared) * queries + row / shared) * width;
        for (uint c = 0; c < COLUMNS; ++c) {
            const uint column = first_column + 32 * c;
            if (row < count && column < width) {
                y[to + column] = narrow<P>(sums[r][c]);
            }
        }
    }
}
