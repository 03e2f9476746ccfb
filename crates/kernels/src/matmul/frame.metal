// Where a matrix product's operands lie, and what becomes of a sum.

// The lines of an operand from `first` on, of `count` in all.
template <typename T>
inline Lines<T> lines(constant Params& p, constant Operand& o, device const T* values, uint batch, uint first, uint count) {
    long origin = long(o.origin) + long(first) * o.strides[0];
    for (uint axis = MAX_RANK - 1; batch > 0 && axis-- > 0;) {
        const uint extent = uint(p.batch[axis]);
        if (extent > 1) {
            origin += long(batch % extent) * o.batch[axis];
            batch /= extent;
        }
    }
    return Lines<T>(values + origin, o.strides[0], o.strides[1], count - first);
}

// Scale, bias, one rounding.
template <typename C, typename Y>
inline void finish(constant Params& p, device const C* bias, device Y* y, Place at, uint row, uint column, float sum) {
    float value = sum * p.alpha;
    if (p.dtypes[2] != ABSENT) {
        value += widen(bias[column]);
    }
    y[(at.batch * p.m + row) * p.n + column] = narrow<Y>(value);
}
