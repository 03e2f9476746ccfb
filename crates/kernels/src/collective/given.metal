// Rows that are where the host says, once the launches ahead have ended. Kernels that take delivered ones have collective/arriving.cu in its place.

template <typename T, typename P>
inline RowReader<T> incoming(device const T* x, uint n, constant P&, Here, uint) {
    RowReader<T> row(x, 1, n);
    row.wide = row.wide && n % SLOTS == 0;
    return row;
}

template <typename T>
inline void await_row(thread const RowReader<T>&) {
    await_launches();
}

// Whether elements that were loaded are still to come.
template <typename T, uint N>
inline bool lacks(thread const RowReader<T>&, thread const float (&)[N][SLOTS]) {
    return false;
}

// Puts elements where the host has the row, where they are already.
template <typename T>
inline void keep(thread const RowReader<T>&, uint, thread const float (&)[SLOTS]) {}
