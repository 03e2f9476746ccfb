// New keys, turned by their positions, into a cache: a threadgroup for each row, a thread for each pair or copied element.
// Read once, turned, rounded to the rows' type and to the cache's, written once.

template <typename S, typename T>
[[kernel]] void rope_append(
    device T* cache [[buffer(0)]],
    device const S* rows [[buffer(1)]],
    device const int* positions [[buffer(2)]],
    device const float* frequencies [[buffer(3)]],
    constant TurnedRows& params [[buffer(4)]],
    device atomic_uint* refusal [[buffer(5)]],
    uint2 group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]],
    uint threads [[threads_per_threadgroup]])
{
    constant Params& p = params.append;
    const long batch = group.x / uint(p.tokens), token = group.x % uint(p.tokens), head = group.y;
    const long position = positions[batch * long(p.position_stride) + token];
    if (position < 0 || position >= long(p.capacity)) {
        refuse(refusal, group.x);
        return;
    }
    device const S* from = rows + (long(p.rows.origin) + batch * p.rows.batch + head * p.rows.head + token * p.rows.token);
    device T* to = cache + (long(p.cache.origin) + batch * p.cache.batch + head * p.cache.head + position * p.cache.token);
    const uint pairs = params.half_dim, width = uint(p.width);
    for (uint pair = index; pair < width - pairs; pair += threads) {
        if (pair >= pairs) {
            to[pair + pairs] = narrow<T>(widen(from[pair + pairs]));
            continue;
        }
        const float angle = float(position) * frequencies[pair], cos = strict::cos(angle), sin = strict::sin(angle);
        const uint i = params.interleaved ? 2 * pair : pair, j = params.interleaved ? i + 1 : i + pairs;
        const float u = widen(from[i]), v = widen(from[j]);
        to[i] = narrow<T>(widen(narrow<S>(u * cos - v * sin)));
        to[j] = narrow<T>(widen(narrow<S>(v * cos + u * sin)));
    }
}
