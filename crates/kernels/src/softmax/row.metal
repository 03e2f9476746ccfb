// The softmax of a row that is shared in the canonical row order, in a form that says how exponentials are made and scaled.
//
// Rows of up to 32768 elements are kept in registers and read once, longer ones three times. Beyond the end of a row stands −∞, whose
// exponential is zero.

template <typename Form, typename S, typename T>
inline void softmax_row(RowReader<S> from, RowWriter<T> to, RowThread t, threadgroup float* partial) {
    typedef typename Form::Maximum Maximum;
    const uint first = SLOTS * t.index, stride = SLOTS * t.count;

    float kept[KEPT][SLOTS];
    float slots[SLOTS];
    float accumulators[SLOTS];
    for (uint i = 0; i < SLOTS; ++i) {
        accumulators[i] = Maximum::identity;
    }
    for (uint v = 0; v < KEPT; ++v) {
        if (from.has(first + v * stride)) {
            from.load(first + v * stride, -INFINITY, kept[v]);
            for (uint i = 0; i < SLOTS; ++i) {
                accumulators[i] = Maximum::apply(accumulators[i], kept[v][i]);
            }
        }
    }
    for (ulong k = first + KEPT * stride; from.has(k); k += stride) {
        from.load(k, -INFINITY, slots);
        for (uint i = 0; i < SLOTS; ++i) {
            accumulators[i] = Maximum::apply(accumulators[i], slots[i]);
        }
    }
    const float shift = Form::shift(combine_row<Maximum>(accumulators, t, partial));

    for (uint i = 0; i < SLOTS; ++i) {
        accumulators[i] = Add::identity;
    }
    for (uint v = 0; v < KEPT; ++v) {
        if (from.has(first + v * stride)) {
            for (uint i = 0; i < SLOTS; ++i) {
                const float shifted = kept[v][i] - shift;
                const float e = Form::exponential(shifted);
                accumulators[i] += e;
                kept[v][i] = Form::kept(shifted, e);
            }
        }
    }
    for (ulong k = first + KEPT * stride; from.has(k); k += stride) {
        from.load(k, -INFINITY, slots);
        for (uint i = 0; i < SLOTS; ++i) {
            accumulators[i] += Form::exponential(slots[i] - shift);
        }
    }
    const float scale = Form::scale(combine_row<Add>(accumulators, t, partial + 32));

    for (uint v = 0; v < KEPT; ++v) {
        if (from.has(first + v * stride)) {
            for (uint i = 0; i < SLOTS; ++i) {
                kept[v][i] = Form::finish(kept[v][i], scale);
            }
            to.store(first + v * stride, kept[v]);
        }
    }
    for (ulong k = first + KEPT * stride; from.has(k); k += stride) {
        from.load(k, -INFINITY, slots);
        for (uint i = 0; i < SLOTS; ++i) {
            const float shifted = slots[i] - shift;
            slots[i] = Form::finish(Form::kept(shifted, Form::exponential(shifted)), scale);
        }
        to.store(k, slots);
    }
}
