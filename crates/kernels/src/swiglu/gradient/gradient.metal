// The gradients of silu(a) · b by both, in f32: three tensors are read once, two are written once.

struct Slopes {
    float a;
    float b;

    Slopes(float a, float b, float dy, float alpha) {
        const strict::Sigmoids s = strict::sigmoids(alpha * a);
        const float silu = a * s.of;
        this->a = dy * b * fma(alpha * silu, s.of_negated, s.of);
        this->b = dy * silu;
    }
};

template <typename T>
[[kernel]] void swiglu_gradient(
    device const T* a [[buffer(0)]],
    device const T* b [[buffer(1)]],
    device const T* dy [[buffer(2)]],
    device T* da [[buffer(3)]],
    device T* db [[buffer(4)]],
    constant Params& params [[buffer(5)]],
    uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]])
{
    const ulong first = first_element(group, index), total = params.rows * params.columns;
    if (first >= total) {
        return;
    }
    const Division place = params.rows == 1 ? Division{0, first} : division(first, params.columns);
    ulong row = place.quotient, column = place.remainder;
    b += params.b_offset;
    device T* to_b = params.b_offset > 0 ? da + params.b_offset : db;
    if (column + SLOTS <= params.columns) {
        const ulong at = row * params.a_stride + column;
        Elements<T> of_a = load_block(stored(a) + at, 1), of_b = load_block(stored(b) + at, 1);
        const Elements<T> of_y = load_block(stored(dy) + first, 1);
        for (uint i = 0; i < SLOTS; ++i) {
            const Slopes slopes(unpack<T>(of_a.at[i]), unpack<T>(of_b.at[i]), unpack<T>(of_y.at[i]), params.alpha);
            of_a.at[i] = pack<T>(slopes.a);
            of_b.at[i] = pack<T>(slopes.b);
        }
        store_block(stored(da) + at, of_a, SLOTS);
        store_block(stored(to_b) + at, of_b, SLOTS);
        return;
    }
    for (uint i = 0; i < elements_from(first, total); ++i) {
        const ulong at = row * params.a_stride + column;
        const Slopes slopes(unpack<T>(stored(a)[at]), unpack<T>(stored(b)[at]), unpack<T>(stored(dy)[first + i]), params.alpha);
        stored(da)[at] = pack<T>(slopes.a);
        stored(to_b)[at] = pack<T>(slopes.b);
        if (++column == params.columns) {
            column = 0;
            ++row;
        }
    }
}
