// The upper or lower triangle of matrices: what is kept is read once, the output is written once.

template <typename T>
[[kernel]] void trilu(
    device const T* x [[buffer(0)]],
    device T* y [[buffer(1)]],
    constant TriluParams& params [[buffer(2)]],
    uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]])
{
    const ulong first = first_element(group, index);
    if (first >= params.count) {
        return;
    }
    const uint count = elements_from(first, params.count);
    const Division place = division(first, params.columns);
    ulong row = division(place.quotient, params.rows).remainder, column = place.remainder;
    Block<T> block;
    for (uint i = 0; i < SLOTS; ++i) {
        // Extents are below 2^63: the difference does not overflow.
        const long diagonal = long(column) - long(row);
        const bool kept = params.upper != 0 ? diagonal >= params.k : diagonal <= params.k;
        block.at[i] = kept && i < count ? x[first + i] : T(0);
        if (++column == params.columns) {
            column = 0;
            row = row + 1 == params.rows ? 0 : row + 1;
        }
    }
    store_block(y + first, block, count);
}
