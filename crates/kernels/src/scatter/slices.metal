// Slices by tuples of coordinates: a line is one element of every slice.

struct SlicePlaces {
    Tuples<long> tuples;
    ulong inner;
    ulong column;

    ulong update(ulong k) const { return k * inner + column; }

    ulong element(ulong k) const {
        const ulong slice = tuples.find(k);
        return slice == OUTSIDE ? OUTSIDE : slice * inner + column;
    }
};

template <typename T, uint REDUCTION>
[[kernel]] void scatter_nd(
    device const long* indices [[buffer(0)]],
    device const T* updates [[buffer(1)]],
    device T* y [[buffer(2)]],
    constant ScatterNdParams& params [[buffer(3)]],
    device atomic_uint* error_flag [[buffer(4)]],
    threadgroup ulong* elements [[threadgroup(0)]],
    uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]])
{
    const ulong line = ulong(group) * params.width + index % params.width;
    const SlicePlaces of = {{{indices, error_flag}, &params.places}, params.places.inner, line};
    scatter_line<typename Reduction<REDUCTION>::Op>(updates, y, of, line < params.places.inner, params.places.tuples, uint(params.width), elements, index);
}
