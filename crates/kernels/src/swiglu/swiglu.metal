// silu(a) · b of two tensors or of the halves of one's rows, in f32: each is read once, the output is written once.

template <typename T>
[[kernel]] void swiglu(
    device const T* a [[buffer(0)]],
    device const T* b [[buffer(1)]],
    device T* y [[buffer(2)]],
    constant Params& params [[buffer(3)]],
    uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]])
{
    const ulong first = first_element(group, index), total = params.rows * params.columns;
    if (first >= total) {
        return;
    }
    const uint count = elements_from(first, total);
    const Division place = params.rows == 1 ? Division{0, first} : division(first, params.columns);
    ulong row = place.quotient, column = place.remainder;
    b += params.b_offset;
    Elements<T> gated, factor;
    if (column + SLOTS <= params.columns) {
        gated = load_block(stored(a) + (row * params.a_stride + column), 1);
        factor = load_block(stored(b) + (row * params.b_stride + column), 1);
    } else {
        for (uint i = 0; i < SLOTS; ++i) {
            gated.at[i] = stored(a)[row * params.a_stride + column];
            factor.at[i] = stored(b)[row * params.b_stride + column];
            if (i + 1 < count && ++column == params.columns) {
                column = 0;
                ++row;
            }
        }
    }
    for (uint i = 0; i < SLOTS; ++i) {
        gated.at[i] = pack<T>(strict::gate(unpack<T>(gated.at[i]), params.alpha) * unpack<T>(factor.at[i]));
    }
    store_block(stored(y) + first, gated, count);
}
