// The position of the largest or smallest element: elements become keys whose order as unsigned numbers is theirs, and the best pair of
// a key and a tie-break wins, which is the same in any order. The input is read once.

template <typename K>
struct Candidate {
    K key;
    uint tie;
};

template <typename K>
inline Candidate<K> shuffle_xor(Candidate<K> c, ushort mask) {
    return {shuffle_xor(c.key, mask), simd_shuffle_xor(c.tie, mask)};
}

template <typename K>
inline Candidate<K> shuffle(Candidate<K> c, ushort lane) {
    return {shuffle(c.key, lane), simd_shuffle(c.tie, lane)};
}

struct ArgMax {
    template <typename T>
    static typename SortKey<T>::type key(T x) { return SortKey<T>::of(x); }
};

// A NaN is best here too.
struct ArgMin {
    template <typename T>
    static typename SortKey<T>::type key(T x) {
        const typename SortKey<T>::type key = SortKey<T>::of(x);
        return SortKey<T>::is_nan(key) ? key : key ^ SortKey<T>::MASK;
    }
};

// Of equal elements the first has the greatest tie-break, or the last.
template <typename Side, typename T>
struct Best {
    typedef typename SortKey<T>::type K;
    typedef Candidate<K> A;
    uint last;

    static A identity() { return {0, 0}; }
    static A apply(A a, A b) { return a.key > b.key || (a.key == b.key && a.tie > b.tie) ? a : b; }
    A step(A a, T x, ulong k) const { return apply(a, {Side::key(x), last ? uint(k) : ~uint(k)}); }
};

template <typename Side, typename T, typename I, uint COLUMNS>
[[kernel]] void arg_reduce(
    device const T* x [[buffer(0)]],
    device I* index [[buffer(1)]],
    constant Params& params [[buffer(2)]],
    threadgroup ulong* memory [[threadgroup(0)]],
    uint group [[threadgroup_position_in_grid]],
    uint threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    typedef typename Best<Side, T>::A A;
    const Share<COLUMNS> share(params.geometry, group, threads, simdgroup, lane);
    const Best<Side, T> best = {params.select_last};
    const A found = share.fold(best, x, params.geometry, reinterpret_cast<threadgroup A*>(memory));
    if (share.leads) {
        index[share.output] = I(params.select_last ? found.tie : ~found.tie);
    }
}
