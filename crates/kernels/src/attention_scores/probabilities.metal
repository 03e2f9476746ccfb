// The softmax of each row of scores, in the canonical row order; zeros for a row of −∞ alone.

struct Probabilities {
    typedef Max Maximum;
    static float shift(float max) { return max == -INFINITY ? 0.0f : max; }
    static float exponential(float x) { return strict::exp(x); }
    static float kept(float, float e) { return e; }
    static float scale(float sum) { return sum == 0.0f ? 0.0f : 1.0f / sum; }
    static float finish(float e, float scale) { return e * scale; }
};

template <typename T>
[[kernel]] void attention_probabilities(
    device const float* scores [[buffer(0)]],
    device T* y [[buffer(1)]],
    constant Rows& rows [[buffer(2)]],
    threadgroup float* partial [[threadgroup(0)]],
    uint group [[threadgroup_position_in_grid]],
    uint threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const RowThread t = row_thread(rows.length, group, threads, simdgroup, lane);
    const ulong n = t.row < rows.outer ? rows.length : 0;
    const ulong start = t.row * rows.length;
    softmax_row<Probabilities>(RowReader<float>(scores + start, 1, n), RowWriter<T>(y + start, 1, n), t, partial);
}
