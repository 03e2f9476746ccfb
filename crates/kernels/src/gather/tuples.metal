// Slices that tuples of coordinates name.

template <typename I>
struct Tuples {
    Indices<I> indices;
    constant TupleParams* params;

    ulong find(ulong number) const {
        ulong slice = division(number, params->batch).quotient;
        for (ulong i = 0; i < params->coordinates; ++i) {
            const ulong entry = indices.resolve(number * params->coordinates + i, params->extents[i]);
            if (entry == OUTSIDE) {
                return OUTSIDE;
            }
            slice = slice * params->extents[i] + entry;
        }
        return slice;
    }
};
