// Softmax and log-softmax along an axis. Rows of up to 32768 neighbours are read once and written once, others read three times.

template <uint LOG>
struct Form {
    typedef Larger Maximum;
    static float shift(float max) { return max; }
    static float exponential(float x) { return strict::exp_nonpositive(x); }
    static float kept(float, float e) { return e; }
    static float scale(float sum) { return 1.0f / sum; }
    static float finish(float e, float scale) { return e * scale; }
};

template <>
struct Form<1> {
    typedef Larger Maximum;
    static float shift(float max) { return max; }
    static float exponential(float x) { return strict::exp_nonpositive(x); }
    static float kept(float shifted, float) { return shifted; }
    static float scale(float sum) { return strict::log(sum); }
    static float finish(float shifted, float log) { return shifted - log; }
};

template <typename T, uint LOG, uint VISITS, uint COUNT>
[[kernel]] void softmax(
    device const T* x [[buffer(0)]],
    device T* y [[buffer(1)]],
    constant Rows& rows [[buffer(2)]],
    threadgroup float* partial [[threadgroup(0)]],
    uint group [[threadgroup_position_in_grid]],
    uint threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const RowThread t = row_thread<COUNT>(rows.length, group, threads, simdgroup, lane);
    const ulong n = t.row < rows.outer * rows.inner ? rows.length : 0;
    if (VISITS > 0) {
        if (VISITS > 1 && n == 0) {
            return;
        }
        const RowShare<T, VISITS, COUNT> share(t, uint(n), is_wide(x) & is_wide(y));
        const ulong start = row_start<VISITS>(t, rows.length);
        softmax_kept<Form<LOG>>(x + start, y + start, share, partial);
        return;
    }
    const ulong start = t.row / rows.inner * rows.length * rows.inner + t.row % rows.inner;
    softmax_row<Form<LOG>>(RowReader<T>(x + start, rows.inner, n), RowWriter<T>(y + start, rows.inner, n), t, partial);
}
