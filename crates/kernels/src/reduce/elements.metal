// Where the elements of an output lie.

// Kept and reduced axes of a geometry, at most.
constant constexpr uint AXES = 4;

// The sum of index · stride over the axes, the last one fastest; in 32 bits where the index has no more.
template <typename I>
inline ulong walk(constant ulong* extents, constant ulong* strides, I index) {
    ulong at = 0;
    for (uint axis = AXES; index > 0 && axis > 0; --axis) {
        const I extent = I(min(extents[axis - 1], ulong(~I(0))));
        at += ulong(index % extent) * strides[axis - 1];
        index /= extent;
    }
    return at;
}

inline ulong offset_of(constant ulong* extents, constant ulong* strides, ulong index) {
    if (index < extents[AXES - 1]) {
        return index * strides[AXES - 1];
    }
    return index < 0xffffffffu ? walk(extents, strides, uint(index)) : walk(extents, strides, index);
}

// Where the elements of output (o, i) begin.
inline ulong kept_offset(constant Geometry& g, ulong o) {
    return offset_of(g.kept_extents, g.kept_strides, o);
}

// Where element k lies behind that.
inline ulong reduced_offset(constant Geometry& g, ulong k) {
    return offset_of(g.reduced_extents, g.reduced_strides, k);
}
