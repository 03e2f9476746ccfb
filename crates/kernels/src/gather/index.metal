// Indices, and copies of the rows that they name.

constant constexpr ulong OUTSIDE = ~0ul;

template <typename I>
struct Indices {
    device const I* indices;
    device atomic_uint* error_flag;

    // The entry of an axis that it names, negative ones from the end. One that is outside is rejected.
    ulong resolve(ulong number, ulong extent) const {
        const I index = indices[number];
        const ulong entry = index < I(0) ? extent + ulong(index) : ulong(index);
        if (entry < extent) {
            return entry;
        }
        reject(error_flag, number);
        return OUTSIDE;
    }
};

// Copies rows of `inner` elements, `total` elements in all: row r from row `source.find(r)` of x; nothing is read for one outside.
template <typename T, typename Source>
inline void gather_rows(device const T* x, device T* y, ulong first, ulong total, ulong inner, Source source) {
    const uint count = elements_from(first, total);
    const Division place = division(first, inner);
    ulong row = place.quotient, column = place.remainder, from = source.find(row);
    Block<T> block;
    if (column + SLOTS <= inner && from != OUTSIDE) {
        block = load_block(x + (from * inner + column), 1);
    } else {
        for (uint i = 0; i < SLOTS; ++i) {
            block.at[i] = from != OUTSIDE ? x[from * inner + column] : T(0);
            if (i + 1 < count && ++column == inner) {
                column = 0;
                from = source.find(++row);
            }
        }
    }
    store_block(y + first, block, count);
}
