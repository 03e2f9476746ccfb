// What a step adds to the caches: keys rotated by their positions and values, and the queries rotated in place. A threadgroup for some heads of a token's keys and
// queries, which share what is made of an angle, or for the values of a head; a thread for each pair or copied element. Read once, rotated, rounded to the rows'
// type and to the cache's, written once.

// Heads that a thread has at a time.
constant constexpr uint TOGETHER = 4;

// Where a token's rows of some heads come from or go to.
template <typename P>
struct Heads {
    P first;
    long stride;

    P operator[](uint head) const { return first + head * stride; }
};

// A pair of elements of each row. Heads are read together: a row is not read behind the store of another.
template <typename S, typename T>
inline void rotate(Heads<device const S*> from, Heads<device T*> to, uint first, uint step, uint heads, uint2 pair, float cos, float sin) {
    for (; first < heads; first += TOGETHER * step) {
        float u[TOGETHER], v[TOGETHER];
#pragma unroll
        for (uint h = 0; h < TOGETHER && first + h * step < heads; ++h) {
            device const S* row = from[first + h * step];
            u[h] = widen(row[pair.x]);
            v[h] = widen(row[pair.y]);
        }
#pragma unroll
        for (uint h = 0; h < TOGETHER && first + h * step < heads; ++h) {
            device T* row = to[first + h * step];
            row[pair.x] = narrow<T>(widen(narrow<S>(u[h] * cos - v[h] * sin)));
            row[pair.y] = narrow<T>(widen(narrow<S>(v[h] * cos + u[h] * sin)));
        }
    }
}

// Packed keys are rotated by their elements.
template <typename S>
inline void rotate(Heads<device const S*>, Heads<device uchar*>, uint, uint, uint, uint2, float, float) {}

// Where a pair's elements are.
inline uint2 elements_of(constant RotatedRows& p, uint pair) { return p.interleaved ? uint2(2 * pair, 2 * pair + 1) : uint2(pair, pair + p.half_dim); }

// An element of a row, rotated.
template <typename S>
inline float rotated(device const S* from, constant RotatedRows& p, float position, device const float* frequencies, uint element) {
    if (element >= 2 * p.half_dim) {
        return widen(from[element]);
    }
    const uint pair = p.interleaved ? element / 2 : element % p.half_dim;
    const uint2 of = elements_of(p, pair);
    const float angle = position * frequencies[pair], cos = strict::cos(angle), sin = strict::sin(angle);
    const float u = widen(from[of.x]), v = widen(from[of.y]);
    return widen(narrow<S>(element == of.x ? u * cos - v * sin : v * cos + u * sin));
}

// Elements of a key that do not rotate.
template <typename S, typename T>
inline void append_rest(device const S* from, device T* to, constant RotatedRows& p, float, device const float*, uint index, uint threads) {
    for (uint k = 2 * p.half_dim + index; k < uint(p.append.width); k += threads) {
        to[k] = narrow<T>(widen(from[k]));
    }
}

// A packed key, a lane for each element.
template <typename S>
inline void append_rest(device const S* from, device uchar* to, constant RotatedRows& p, float position, device const float* frequencies, uint index, uint threads) {
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

template <typename P>
inline Heads<P> heads_at(P values, constant View& view, long batch, long token) {
    return {values + (long(view.origin) + batch * view.batch + token * view.token), long(view.head)};
}

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
    if (group.y < value_heads) {
        const auto from = heads_at(values, params.values.rows, batch, token);
        const auto to = heads_at(value_cache, params.values.cache, batch, slot);
        append_value(from[group.y], to[group.y], uint(params.values.width), index, threads);
        return;
    }
    const uint first = group.y - value_heads, step = groups.y - value_heads;
    const auto from = heads_at(rows, keys.rows, batch, token);
    const auto to = heads_at(cache, keys.cache, batch, slot);
    const auto turned = heads_at(queries, params.queries, batch, token);
    for (uint pair = index; pair < pairs; pair += threads) {
        const float angle = float(position) * frequencies[pair], cos = strict::cos(angle), sin = strict::sin(angle);
        const uint2 of = elements_of(params, pair);
        rotate(Heads<device const S*>{turned.first, turned.stride}, turned, first, step, uint(params.query_heads), of, cos, sin);
        rotate(from, to, first, step, key_heads, of, cos, sin);
    }
    for (uint head = first; head < key_heads; head += step) {
        append_rest(from[head], to[head], params, float(position), frequencies, index, threads);
    }
}
