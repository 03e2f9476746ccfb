// The softmax of a row that is shared in the canonical row order, in a form that says how exponentials are made and scaled.

// A row that is kept in registers, and so read once.
template <typename Form, typename T, uint VISITS, uint COUNT>
inline void softmax_kept(device const T* from, device T* to, RowShare<T, VISITS, COUNT> share, threadgroup float* partial) {
    typedef typename Form::Maximum Maximum;
    typename RowShare<T, VISITS, COUNT>::template Kept<T> row;
    // Halves would take longer BEFORE_RESULTS (measured on an H200).
    share.template load_once<sizeof(T) == 4 ? BEFORE_RESULTS : WORDS>(from, -INFINITY, row);

    float kept[RowShare<T, VISITS, COUNT>::KEPT][SLOTS];
    float accumulators[SLOTS];
    for (uint i = 0; i < SLOTS; ++i) {
        accumulators[i] = Maximum::identity;
    }
    for (uint v = 0; v < VISITS; ++v) {
        if (share.has(v)) {
            row.widen_visit(v, kept[v]);
            for (uint i = 0; i < SLOTS; ++i) {
                accumulators[i] = Maximum::apply(accumulators[i], kept[v][i]);
            }
        }
    }
    const float shift = Form::shift(share.template combine<Maximum>(accumulators, partial));

    for (uint i = 0; i < SLOTS; ++i) {
        accumulators[i] = Add::identity;
    }
    for (uint v = 0; v < VISITS; ++v) {
        if (share.has(v)) {
            for (uint i = 0; i < SLOTS; ++i) {
                const float shifted = kept[v][i] - shift;
                const float e = Form::exponential(shifted);
                accumulators[i] += e;
                kept[v][i] = Form::kept(shifted, e);
            }
        }
    }
    const float scale = Form::scale(share.template combine<Add>(accumulators, partial + 32));

    for (uint v = 0; v < VISITS; ++v) {
        if (share.has(v)) {
            for (uint i = 0; i < SLOTS; ++i) {
                kept[v][i] = Form::finish(kept[v][i], scale);
            }
            share.store(to, v, kept[v]);
        }
    }
}

// Any row, which is read three times. Beyond its end stands −∞, whose exponential is zero.
template <typename Form, typename S, typename T>
inline void softmax_row(RowReader<S> from, RowWriter<T> to, RowThread t, threadgroup float* partial) {
    typedef typename Form::Maximum Maximum;
    const uint first = SLOTS * t.index, stride = SLOTS * t.count;

    float slots[SLOTS];
    float accumulators[SLOTS];
    for (uint i = 0; i < SLOTS; ++i) {
        accumulators[i] = Maximum::identity;
    }
    for (ulong k = first; from.has(k); k += stride) {
        from.load(k, -INFINITY, slots);
        for (uint i = 0; i < SLOTS; ++i) {
            accumulators[i] = Maximum::apply(accumulators[i], slots[i]);
        }
    }
    const float shift = Form::shift(combine_row<Maximum>(accumulators, t, partial));

    for (uint i = 0; i < SLOTS; ++i) {
        accumulators[i] = Add::identity;
    }
    for (ulong k = first; from.has(k); k += stride) {
        from.load(k, -INFINITY, slots);
        for (uint i = 0; i < SLOTS; ++i) {
            accumulators[i] += Form::exponential(slots[i] - shift);
        }
    }
    const float scale = Form::scale(combine_row<Add>(accumulators, t, partial + 32));

    for (ulong k = first; from.has(k); k += stride) {
        from.load(k, -INFINITY, slots);
        for (uint i = 0; i < SLOTS; ++i) {
            const float shifted = slots[i] - shift;
            slots[i] = Form::finish(Form::kept(shifted, Form::exponential(shifted)), scale);
        }
        to.store(k, slots);
    }
}
