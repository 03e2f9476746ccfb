// A copy in which the destination's inner axis strides through the source and another axis is contiguous there: a threadgroup moves a tile by
// way of threadgroup memory, so that both sides are read and written along their contiguous axes. One read and one write.

constant constexpr uint TILE = 32;
constant constexpr uint TILE_STEP = THREADS / TILE;

template <typename T>
[[kernel]] void exchange(
    device const T* x [[buffer(0)]],
    device T* y [[buffer(1)]],
    constant CopyParams& copy [[buffer(2)]],
    threadgroup T* tile [[threadgroup(0)]],
    uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]])
{
    const uint inner = uint(copy.space.rank) - 1, axis = uint(copy.axis);
    const ulong rows = copy.space.extents[axis], columns = copy.space.extents[inner];

    Division place = division(group, (columns + TILE - 1) / TILE);
    const ulong column = place.remainder * TILE;
    place = division(place.quotient, (rows + TILE - 1) / TILE);
    const ulong row = place.remainder * TILE;
    long from = long(copy.from.origin), to = long(copy.to.origin);
    for (uint other = inner; other > 0; --other) {
        if (other - 1 != axis) {
            place = division(place.quotient, copy.space.extents[other - 1]);
            from += long(place.remainder) * copy.from.strides[other - 1];
            to += long(place.remainder) * copy.to.strides[other - 1];
        }
    }
    const uint lane = index % TILE, line = index / TILE;
    for (uint c = line; c < TILE; c += TILE_STEP) {
        if (row + lane < rows && column + c < columns) {
            tile[c * (TILE + 1) + lane] = x[from + long(row + lane) + long(column + c) * copy.from.strides[inner]];
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint r = line; r < TILE; r += TILE_STEP) {
        if (row + r < rows && column + lane < columns) {
            y[to + long(row + r) * copy.to.strides[axis] + long(column + lane)] = tile[lane * (TILE + 1) + r];
        }
    }
}
