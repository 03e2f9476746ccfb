// New rows into a cache, a threadgroup for each: read once, rounded to the cache's type, written once.

template <typename S, typename T>
inline void append(device const S* row, device T* cache, uint width, uint index, uint threads) {
    device const typename Stored<S>::type* from = stored(row);
    device typename Stored<T>::type* to = stored(cache);
    for (uint k = SLOTS * index; k < width; k += SLOTS * threads) {
        const uint count = min(SLOTS, width - k);
        Elements<S> elements;
        if (count == SLOTS) {
            elements = load_block(from + k, 1);
        } else {
            for (uint i = 0; i < SLOTS; ++i) {
                elements.at[i] = i < count ? from[k + i] : 0;
            }
        }
        Elements<T> block;
        for (uint i = 0; i < SLOTS; ++i) {
            block.at[i] = pack<T>(unpack<S>(elements.at[i]));
        }
        store_block(to + k, block, count);
    }
}

// A packed row: its elements are a multiple of 32, and so are threads.
template <typename S>
inline void append(device const S* row, device uchar* cache, uint width, uint index, uint threads) {
    for (uint k = index; k < width; k += threads) {
        quantise(cache, k, width, widen(row[k]), true);
    }
}

template <typename S, typename T>
[[kernel]] void kv_append(
    device T* cache [[buffer(0)]],
    device const S* rows [[buffer(1)]],
    device const int* positions [[buffer(2)]],
    constant Params& params [[buffer(3)]],
    device atomic_uint* error_flag [[buffer(4)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]],
    uint3 threads [[threads_per_threadgroup]])
{
    const Division place = division(group.x, params.tokens);
    const long batch = long(place.quotient), token = long(place.remainder), head = group.y;
    const long position = positions[batch * long(params.position_stride) + token];
    if (position < 0 || position >= long(params.capacity)) {
        reject(error_flag, group.x);
        return;
    }
    device const S* row = rows + (long(params.rows.origin) + batch * params.rows.batch + head * params.rows.head + token * params.rows.token);
    device T* to = cache + (long(params.cache.origin) + batch * params.cache.batch + head * params.cache.head + position * params.cache.token);
    const uint width = uint(params.width);
    append(row, to, width, index, threads.x);
}
