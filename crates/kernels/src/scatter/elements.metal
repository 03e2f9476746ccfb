// Single elements along an axis: a line is the updates that share all other coordinates.

struct ElementPlaces {
    Indices<long> indices;
    ulong first;
    ulong step;
    ulong start;
    ulong stride;
    ulong extent;

    ulong update(ulong k) const { return first + k * step; }

    ulong element(ulong k) const {
        const ulong entry = indices.resolve(update(k), extent);
        return entry == OUTSIDE ? OUTSIDE : start + entry * stride;
    }
};

template <typename T, uint REDUCTION>
[[kernel]] void scatter_elements(
    device const long* indices [[buffer(0)]],
    device const T* updates [[buffer(1)]],
    device T* y [[buffer(2)]],
    constant ScatterElementsParams& params [[buffer(3)]],
    device atomic_uint* error_flag [[buffer(4)]],
    threadgroup ulong* elements [[threadgroup(0)]],
    uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]])
{
    constant GatherElementsParams& places = params.places;
    const ulong line = ulong(group) * params.width + index % params.width;
    const Division outer = division(line, params.inner);
    const ulong first = outer.quotient * params.length * params.inner + outer.remainder;
    const Division place = division(first, places.space.extents[places.space.rank - 1]);
    const ulong start = row_start(places.space, places.x, place.quotient) + place.remainder * inner_step(places.space, places.x);
    const ElementPlaces of = {{indices, error_flag}, first, params.inner, start, places.stride, places.extent};
    scatter_line<typename Reduction<REDUCTION>::Op>(updates, y, of, line < params.lines, params.length, uint(params.width), elements, index);
}
