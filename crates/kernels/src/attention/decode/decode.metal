// Attention of one new token of each text, which goes into the caches first: a threadgroup for each tile of heads and block of keys, as split.metal. Each rotates
// its own queries; those with the block that the token falls into rotate its key too, and the first of them writes it and its value to the caches. None reads
// that row there, so that the other rows, which earlier steps wrote, may be sent for before the launches ahead have ended.

// The key that is not in memory yet, at `key`, and its value, as the caches will hold them; the others are at their places.
template <typename Places>
struct Appended {
    Places places;
    // What is attended.
    KeyRange keys;
    uint key;
    threadgroup const float* elements;
    threadgroup const float* value;

    // A group without a key in memory takes those of another: what is at its own places may be being written. So may any page but a text's own.
    KeyRange turn(uint start, KeyRange stored) {
        places.turn(start, keys);
        if (!stored.is_empty() && (stored.end <= start || start + GROUP <= stored.start)) {
            places.turn(stored.start / GROUP * GROUP, stored);
        }
        return places.is_missing() ? KeyRange{0, 0} : stored;
    }

    template <typename T>
    device const T* nearest(device const T* base, KeyRange stored, uint at, int step) const {
        return places.nearest(base, stored, at, step);
    }
    template <typename T>
    device const T* at(device const T* base, uint at, int step) const {
        return places.at(base, at, step);
    }

    KeyRange stored(KeyRange keys) const { return {keys.start, min(keys.end, key)}; }
    bool is_among(uint first, uint count) const { return key - first < count; }

    template <uint N>
    void replace_key(uint at, uint element, thread float (&slots)[N]) const {
        for (uint i = 0; i < N && at == key; ++i) {
            slots[i] = elements[element + i];
        }
    }

    template <uint N>
    void replace_value(uint at, uint column, thread float (&slots)[N]) const {
        for (uint i = 0; i < N && at == key; ++i) {
            slots[i] = value[column + i];
        }
    }
};

constant constexpr uint NO_KEY = 0xffffffffu;

// Two elements of a row that rotate together, or one that is copied, as both.
template <typename Q>
struct Pair {
    Q u;
    Q v;
};

// Where the pairs of a row are, and by how much they rotation.
struct Rotation {
    uint count;
    uint interleaved;
    threadgroup const float* cosines;
    threadgroup const float* sines;

    uint first(uint i) const { return i >= count ? i + count : interleaved ? 2 * i : i; }
    uint second(uint i) const { return i >= count ? i + count : interleaved ? 2 * i + 1 : i + count; }

    template <typename Q>
    Pair<Q> load(device const Q* row, uint i) const {
        return {row[first(i)], row[second(i)]};
    }

    // Rounded to Q, as rope_append does.
    template <typename Q>
    float2 apply(Pair<Q> pair, uint i) const {
        const float u = widen(pair.u), v = widen(pair.v);
        if (i >= count) {
            return float2(u, v);
        }
        return float2(widen(narrow<Q>(u * cosines[i] - v * sines[i])), widen(narrow<Q>(v * cosines[i] + u * sines[i])));
    }
};

// What is left of storing a packed key and value.
template <typename T, typename KV>
inline void quantise_both(thread const T&, device KV*, device KV*, threadgroup float*, threadgroup float*, bool) {}

template <typename T>
inline void quantise_both(thread const T& tile, device uchar* key_row, device uchar* value_row, threadgroup float* key, threadgroup float* value, bool writes) {
    const uint width = uint(tile.p.score.width), value_width = uint(tile.p.value_width), thread_index = tile.thread_index();
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = thread_index; i < width; i += THREADS) {
        key[i] = quantise(key_row, i, width, key[i], writes);
    }
    for (uint i = thread_index; i < value_width; i += THREADS) {
        value[i] = quantise(value_row, i, value_width, value[i], writes);
    }
}

// Where a new token goes.
struct Place {
    uint text;
    int position;
    long slot;
    // Whether the caches have the slot.
    bool fits;
};

// The text of a threadgroup.
inline uint text_of(constant Params& p, uint index) {
    const uint blocks = (uint(p.score.keys) + BLOCK - 1) / BLOCK;
    return index / blocks % uint(p.score.kv_heads * p.score.batch) / uint(p.score.kv_heads);
}

template <uint ROWS, uint LANES, uint COLUMNS, uint CHUNKS, uint CLUSTER, typename Q, typename KV, typename Places>
inline void attend_token(
    device KV* cache,
    device KV* value_cache,
    device const Q* queries,
    device const Q* rows,
    device const Q* values,
    device const int* positions,
    device const float* frequencies,
    device float* sums,
    device float* states,
    device Q* y,
    constant Params& p,
    constant TokenParams& token,
    Places places,
    Place place,
    device atomic_uint* error_flag,
    threadgroup float* shared,
    uint index,
    uint lane,
    uint simdgroup)
{
    typedef Tile<Q, KV, bool, ROWS, LANES, COLUMNS, CHUNKS, Appended<Places>> T;
    const uint keys = uint(p.score.keys), blocks = (keys + BLOCK - 1) / BLOCK, block = index % blocks, heads = uint(p.score.kv_heads * p.score.batch);
    const uint number = index / blocks / heads, thread_index = simdgroup * 32 + lane;
    const uint width = uint(p.score.width), value_width = uint(p.value_width);
    T tile(p, queries, cache, value_cache, nullptr, shared, lane, simdgroup, number, index / blocks % heads);

    const bool is_key = place.fits && place.position >= 0 && uint(place.position) < keys;
    threadgroup float* key = reinterpret_cast<threadgroup float*>(tile.ranges + ROWS);
    threadgroup float* value = key + LANES * SLOTS;
    const KeyRange range = attended(p.score, positions, nullptr, place.text, 0);
    tile.newest = {places, range, is_key ? uint(place.position) : NO_KEY, key, value};
    tile.attend(range);
    const bool has_block = tile.first_block() <= block && block < tile.last_block();
    // The threadgroups with the block of keys that has the token, or the nearest one.
    const bool appends = place.fits && uint(clamp(place.position, 0, int(keys) - 1)) / BLOCK == block, works = has_block || appends;
    if (has_block) {
        tile.start_keys(block);
    }

    // Where sums will meet.
    threadgroup float* cosines = tile.meeting;
    threadgroup float* sines = cosines + token.half_dim;
    const Rotation rotation = {token.half_dim, token.interleaved, cosines, sines};
    for (uint i = thread_index; i < token.half_dim && works; i += THREADS) {
        const float angle = float(place.position) * frequencies[i];
        cosines[i] = strict::cos(angle);
        sines[i] = strict::sin(angle);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    await_launches();
    if (!place.fits && index == place.text * uint(p.score.kv_heads) * blocks && thread_index == 0) {
        reject(error_flag, place.text);
    }
    const Shared<T> left = {value + T::PADDED};
    if (!works) {
        if (CLUSTER > 0) {
            left.combine(tile, block, blocks, y);
        }
        return;
    }

    // All that is new comes at once.
    constexpr uint ROTATIONS = (ROWS * LANES * SLOTS + THREADS - 1) / THREADS;
    const uint pairs = width - token.half_dim, head = tile.kv_head;
    Pair<Q> own[ROTATIONS], own_key;
    Q own_value;
#pragma unroll
    for (uint i = 0; i < ROTATIONS; ++i) {
        const uint item = thread_index + i * THREADS;
        if (item < ROWS * pairs) {
            own[i] = rotation.load(queries + row_of(p.score.q, tile.batch, tile.head(item / pairs), 0), item % pairs);
        }
    }
    if (appends && thread_index < pairs) {
        own_key = rotation.load(rows + row_of(token.new_key, 0, head, place.text), thread_index);
    }
    device const Q* value_row = values + row_of(token.new_value, 0, head, place.text);
    if (appends && thread_index < value_width) {
        own_value = value_row[thread_index];
    }
#pragma unroll
    for (uint i = 0; i < ROTATIONS; ++i) {
        const uint item = thread_index + i * THREADS, r = item / pairs, pair = item % pairs;
        if (item < ROWS * pairs) {
            const float2 rotated = rotation.apply(own[i], pair);
            tile.put_query(r, rotation.first(pair), rotated.x);
            tile.put_query(r, rotation.second(pair), rotated.y);
        }
    }
    // Elements beyond the width change no sum.
    for (uint item = thread_index; item < ROWS * (LANES * SLOTS - width); item += THREADS) {
        tile.put_query(item % ROWS, width + item / ROWS, -0.0f);
    }
    if (appends) {
        device KV* key_row = cache + row_of(p.score.k, tile.batch, head, place.slot);
        device KV* to = value_cache + row_of(p.v, tile.batch, head, place.slot);
        const bool writes = number == 0;
        if (thread_index < pairs) {
            const float2 rotated = rotation.apply(own_key, thread_index);
            const uint at[2] = {rotation.first(thread_index), rotation.second(thread_index)};
            for (uint i = 0; i < 2; ++i) {
                key[at[i]] = put(key_row, at[i], rotated[i], writes);
            }
        }
        for (uint i = width + thread_index; i < LANES * SLOTS; i += THREADS) {
            key[i] = 0.0f;
        }
        for (uint i = thread_index; i < T::PADDED; i += THREADS) {
            if (i >= value_width) {
                value[i] = 0.0f;
                continue;
            }
            value[i] = put(to, i, widen(i == thread_index ? own_value : value_row[i]), writes);
        }
        quantise_both(tile, key_row, to, key, value, writes);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (has_block && CLUSTER > 0) {
        sum_block<ROWS, COLUMNS, CHUNKS>(tile, block, left);
    } else if (has_block) {
        sum_block<ROWS, COLUMNS, CHUNKS>(tile, block, Left{sums, states, blocks, block});
    }
    if (CLUSTER > 0) {
        left.combine(tile, block, blocks, y);
    }
}
