// Where the operands of the adapted layer lie, and what becomes of its sums.

template <typename T>
inline Lines<T> row_major(device const T* values, ulong width, uint first, uint count) {
    return Lines<T>(values + first * width, long(width), 1, count - first);
}

template <typename C, typename Y>
inline void finish(constant Params& p, device const C* bias, device Y* y, uint row, uint column, float sum, float delta) {
    if (p.dtypes[4] != ABSENT) {
        sum += widen(bias[column]);
    }
    y[row * p.n + column] = narrow<Y>(sum + delta);
}
