// What a step adds to the caches: keys rotated by their positions and values, and the queries rotated in place. A threadgroup for each row, or for some of a
// token's queries, and a thread for each pair or copied element. Read once, rotated, rounded to the rows' type and to the cache's, written once.

template <typename S, typename T>
inline void rotate(device const S* from, device T* to, constant RotatedRows& p, float position, device const float* frequencies, uint pair) {
    const float angle = position * frequencies[pair], cos = strict::cos(angle), sin = strict::sin(angle);
    const uint i = p.interleaved ? 2 * pair : pair, j = p.interleaved ? i + 1 : i + p.half_dim;
    const float u = widen(from[i]), v = widen(from[j]);
    to[i] = narrow<T>(widen(narrow<S>(u * cos - v * sin)));
    to[j] = narrow<T>(widen(narrow<S>(v * cos + u * sin)));
}

// The same of one element.
template <typename S>
inline float rotated(device const S* from, constant RotatedRows& p, float position, device const float* frequencies, uint element) {
    if (element >= 2 * p.half_dim) {
        return widen(from[element]);
    }
    const uint pair = p.interleaved ? element / 2 : element % p.half_dim;
    const uint i = p.interleaved ? 2 * pair : pair, j = p.interleaved ? i + 1 : i + p.half_dim;
    const float angle = position * frequencies[pair], cos = strict::cos(angle), sin = strict::sin(angle);
    const float u = widen(from[i]), v = widen(from[j]);
    return widen(narrow<S>(element == i ? u * cos - v * sin : v * cos + u * sin));
}

// A thread for each pair or copied element of a key.
template <typename S, typename T>
inline void append_key(device const S* from, device T* to, constant RotatedRows& p, float position, device const float* frequencies, uint index, uint threads) {
    const uint pairs = p.half_dim;
    for (uint pair = index; pair < uint(p.append.width) - pairs; pair += threads) {
        if (pair < pairs) {
            rotate(from, to, p, position, frequencies, pair);
        } else {
            to[pair + pairs] = narrow<T>(widen(from[pair + pairs]));
        }
    }
}

// A lane for each element of a packed key.
template <typename S>
inline void append_key(device const S* from, device uchar* to, constant RotatedRows& p, float position, device const float* frequencies, uint index, uint threads) {
    const uint width = uint(p.append.width);
    for (uint k = index; k < width; k += threads) {
        quantise(to, k, width, rotated(from, p, position, frequencies, k), true);
    }
}

template <typename S, typename T>
inline void append_value(device const S* from, device T* to, uint width, uint index, uint threads) {
    for (uint k = index; k < width; k += threads) {
        to[k] = narrow<T>(widen(from[k]));
    }
}

template <typename S>
inline void append_value(device const S* from, device uchar* to, uint width, uint index, uint threads) {
    for (uint k = index; k < width; k += threads) {
        quantise(to, k, width, widen(from[k]), true);
    }
}

template <typename T>
inline device T* row_at(device T* values, constant View& view, long batch, long head, long token) {
    return values + (long(view.origin) + batch * view.batch + head * view.head + token * view.token);
}

// Heads of a token's queries that a thread has at a time.
constant constexpr uint TOGETHER = 4;

template <typename S, typename T>
[[kernel]] void rope_append(
    device T* cache [[buffer(0)]],
    device const S* rows [[buffer(1)]],
    device const int* positions [[buffer(2)]],
    device const float* frequencies [[buffer(3)]],
    device T* value_cache [[buffer(4)]],
    device const S* values [[buffer(5)]],
    device S* queries [[buffer(6)]],
    device const int* slots [[buffer(7)]],
    constant RotatedRows& params [[buffer(8)]],
    device atomic_uint* error_flag [[buffer(9)]],
    uint2 group [[threadgroup_position_in_grid]],
    uint2 groups [[threadgroups_per_grid]],
    uint index [[thread_index_in_threadgroup]],
    uint2 threads_of_group [[threads_per_threadgroup]])
{
    const uint threads = threads_of_group.x;
    await_launches();
    constant Params& keys = params.append;
    const uint pairs = params.half_dim, key_heads = uint(keys.heads), value_heads = uint(params.values.heads);
    const long batch = group.x / uint(keys.tokens), token = group.x % uint(keys.tokens);
    const long at = batch * long(keys.position_stride) + token, position = positions[at];
    const long slot = params.slotted ? long(slots[at]) : position;
    if (slot < 0 || slot >= long(keys.capacity)) {
        reject(error_flag, group.x);
        return;
    }
    if (group.y < key_heads) {
        device const S* from = row_at(rows, keys.rows, batch, group.y, token);
        device T* to = row_at(cache, keys.cache, batch, group.y, slot);
        append_key(from, to, params, float(position), frequencies, index, threads);
    } else if (group.y < key_heads + value_heads) {
        const uint head = group.y - key_heads;
        device const S* from = row_at(values, params.values.rows, batch, head, token);
        device T* to = row_at(value_cache, params.values.cache, batch, head, slot);
        append_value(from, to, uint(params.values.width), index, threads);
    } else {
        const uint others = key_heads + value_heads, step = groups.y - others;
        for (uint pair = index; pair < pairs; pair += threads) {
            const float angle = float(position) * frequencies[pair], cos = strict::cos(angle), sin = strict::sin(angle);
            const uint i = params.interleaved ? 2 * pair : pair, j = params.interleaved ? i + 1 : i + pairs;
            // Heads are read together: a row is not read behind the store of another.
            for (uint first = group.y - others; first < uint(params.query_heads); first += TOGETHER * step) {
                float u[TOGETHER], v[TOGETHER];
#pragma unroll
                for (uint h = 0; h < TOGETHER && first + h * step < uint(params.query_heads); ++h) {
                    device const S* row = row_at(queries, params.queries, batch, first + h * step, token);
                    u[h] = widen(row[i]);
                    v[h] = widen(row[j]);
                }
#pragma unroll
                for (uint h = 0; h < TOGETHER && first + h * step < uint(params.query_heads); ++h) {
                    device S* row = row_at(queries, params.queries, batch, first + h * step, token);
                    row[i] = narrow<S>(u[h] * cos - v[h] * sin);
                    row[j] = narrow<S>(v[h] * cos + u[h] * sin);
                }
            }
        }
    }
}
