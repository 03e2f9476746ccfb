// Reductions: the input is read once, by log_sum_exp twice, and an element is written for each output.

template <typename T>
struct Sum {
    typedef typename Accumulator<T>::wrapping A;
    static A identity() { return 0; }
    static A apply(A a, A b) { return a + b; }
    static A finish(A total, ulong) { return total; }
    A step(A a, T x, ulong) const { return a + accumulable<A>(x); }
};

template <typename T>
struct Mean {
    typedef float A;
    static float identity() { return 0; }
    static float apply(float a, float b) { return a + b; }
    static float finish(float total, ulong n) { return total / float(n); }
    float step(float a, T x, ulong) const { return a + accumulable<float>(x); }
};

template <typename T, bool ROOT>
struct Squares {
    typedef float A;
    static float identity() { return 0; }
    static float apply(float a, float b) { return a + b; }
    static float finish(float total, ulong) { return ROOT ? sqrt(total) : total; }
    float step(float a, T x, ulong) const { return fma(accumulable<float>(x), accumulable<float>(x), a); }
};

template <typename T>
using SumSquare = Squares<T, false>;
template <typename T>
using L2 = Squares<T, true>;

template <typename T>
struct Product {
    typedef typename Accumulator<T>::wrapping A;
    static A identity() { return 1; }
    static A apply(A a, A b) { return a * b; }
    static A finish(A total, ulong) { return total; }
    A step(A a, T x, ulong) const { return a * accumulable<A>(x); }
};

// Metal has no limits of bool.
template <typename T>
inline T least_of() {
    return numeric_limits<T>::lowest();
}

template <>
inline bool least_of<bool>() {
    return false;
}

template <typename T>
inline T greatest_of() {
    return numeric_limits<T>::max();
}

template <>
inline bool greatest_of<bool>() {
    return true;
}

// NaN if any element is: only a NaN differs from itself.
template <typename T>
struct Largest {
    typedef typename Accumulator<T>::ordered A;
    static A identity() { return least(A(0)); }
    static A least(float) { return -INFINITY; }
    template <typename I>
    static A least(I) { return A(least_of<T>()); }
    static A apply(A a, A b) { return a != a || a > b ? a : b; }
    static A finish(A total, ulong) { return total; }
    A step(A a, T x, ulong) const { return apply(a, accumulable<A>(x)); }
};

template <typename T>
struct Smallest {
    typedef typename Accumulator<T>::ordered A;
    static A identity() { return greatest(A(0)); }
    static A greatest(float) { return INFINITY; }
    template <typename I>
    static A greatest(I) { return A(greatest_of<T>()); }
    static A apply(A a, A b) { return a != a || a < b ? a : b; }
    static A finish(A total, ulong) { return total; }
    A step(A a, T x, ulong) const { return apply(a, accumulable<A>(x)); }
};

template <template <typename> class Op, typename T, uint COLUMNS>
[[kernel]] void reduce(
    device const T* x [[buffer(0)]],
    device T* y [[buffer(1)]],
    constant Geometry& geometry [[buffer(2)]],
    threadgroup ulong* memory [[threadgroup(0)]],
    uint group [[threadgroup_position_in_grid]],
    uint threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    typedef typename Op<T>::A A;
    const Share<COLUMNS> share(geometry, group, threads, simdgroup, lane);
    const A total = share.fold(Op<T>(), x, geometry, reinterpret_cast<threadgroup A*>(memory));
    if (share.leads) {
        y[share.output] = element<T>(Op<T>::finish(total, geometry.length));
    }
}

// Adds exp(x - shift).
template <typename T>
struct SumExp {
    typedef float A;
    float shift;

    static float identity() { return 0; }
    static float apply(float a, float b) { return a + b; }
    float step(float a, T x, ulong) const { return a + strict::exp(widen(x) - shift); }
};

template <typename T, uint COLUMNS>
[[kernel]] void log_sum_exp(
    device const T* x [[buffer(0)]],
    device T* y [[buffer(1)]],
    constant Geometry& geometry [[buffer(2)]],
    threadgroup float* memory [[threadgroup(0)]],
    uint group [[threadgroup_position_in_grid]],
    uint threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const Share<COLUMNS> share(geometry, group, threads, simdgroup, lane);
    const float largest = share.broadcast(share.fold(Largest<T>(), x, geometry, memory), memory);
    const float shift = isfinite(largest) ? largest : 0.0f;
    const float total = share.fold(SumExp<T>{shift}, x, geometry, memory + 32);
    if (share.leads) {
        y[share.output] = narrow<T>(strict::log(total) + shift);
    }
}
