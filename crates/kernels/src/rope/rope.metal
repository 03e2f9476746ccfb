// Rotary position embedding: a thread makes the cosine and the sine of a pair once and rotates the pair in up to HEADS heads of its token.
// Elements that do not rotate are copied in the same way.
//
// Memory: the input is read once, the output is written once, neighbouring threads at neighbouring pairs.

constant constexpr uint HEADS = 4;

// The heads of a token that a thread works on.
template <typename T>
struct Heads {
    device const T* x;
    device T* y;
    uint first;
    uint end;
    uint step;
    long x_head;
    long x_element;
    ulong y_head;

    Heads(device const T* x_start, device T* y_start, constant Params& params, uint2 token, uint block, uint index, uint threads) {
        x = x_start + (long(params.x_origin) + long(token.x) * params.x[0] + long(token.y) * params.x[1]);
        y = y_start + (token.x * params.y[0] + token.y * params.y[1]);
        first = block * HEADS * threads + index;
        end = min(uint(params.extents[2]), (block + 1) * HEADS * threads);
        step = threads;
        x_head = params.x[2];
        x_element = params.x[3];
        y_head = params.y[2];
    }

    // Rotates elements i and j of every head.
    void rotate(uint i, uint j, float2 angle) const {
        for (uint head = first; head < end; head += step) {
            device const T* from = x + long(head) * x_head;
            device T* to = y + head * y_head;
            const float u = widen(from[i * x_element]), v = widen(from[j * x_element]);
            to[i] = narrow<T>(u * angle.x - v * angle.y);
            to[j] = narrow<T>(v * angle.x + u * angle.y);
        }
    }

    // Copies an element of every head.
    void copy(uint i) const {
        for (uint head = first; head < end; head += step) {
            y[head * y_head + i] = x[long(head) * x_head + i * x_element];
        }
    }
};

// Rotates or copies the thread's elements; `angles.of(pair)` gives the cosine and the sine of what a pair is rotated by.
template <typename T, typename Angles>
inline void rotate(Heads<T> heads, Angles angles, constant Params& params, uint first, uint threads) {
    const uint pairs = params.half_dim, dim = uint(params.extents[3]);
    for (uint pair = first; pair < dim - pairs; pair += threads) {
        if (pair >= pairs) {
            heads.copy(pair + pairs);
            continue;
        }
        const uint i = params.interleaved ? 2 * pair : pair;
        heads.rotate(i, params.interleaved ? i + 1 : i + pairs, angles.of(pair));
    }
}

struct Computed {
    float position;
    device const float* frequencies;

    float2 of(uint pair) const {
        const float angle = position * frequencies[pair];
        return float2(strict::cos(angle), strict::sin(angle));
    }
};

// A row of the caches; NaN for one that they do not have.
template <typename C>
struct Cached {
    device const C* cosines;
    device const C* sines;
    bool exists;

    float2 of(uint pair) const { return exists ? float2(widen(cosines[pair]), widen(sines[pair])) : float2(NAN, NAN); }
};

// Batch and token of a threadgroup.
inline uint2 token_of(constant Params& params, uint group) {
    const uint tokens = uint(params.extents[1]);
    return uint2(group / tokens, group % tokens);
}

template <typename T, typename P>
[[kernel]] void rope(
    device const T* x [[buffer(0)]],
    device const P* positions [[buffer(1)]],
    device const float* frequencies [[buffer(2)]],
    device T* y [[buffer(3)]],
    constant Params& params [[buffer(4)]],
    uint2 group [[threadgroup_position_in_grid]],
    uint2 place [[thread_position_in_threadgroup]],
    uint2 threads [[threads_per_threadgroup]])
{
    const uint2 token = token_of(params, group.x);
    const Computed angles = {float(positions[token.x * params.position_stride + token.y]), frequencies};
    rotate(Heads<T>(x, y, params, token, group.y, place.y, threads.y), angles, params, place.x, threads.x);
}

template <typename T, typename C, typename P>
[[kernel]] void rotary_embedding(
    device const T* x [[buffer(0)]],
    device const C* cos_cache [[buffer(1)]],
    device const C* sin_cache [[buffer(2)]],
    device const P* position_ids [[buffer(3)]],
    device T* y [[buffer(4)]],
    constant Params& params [[buffer(5)]],
    device atomic_uint* error_flag [[buffer(6)]],
    uint2 group [[threadgroup_position_in_grid]],
    uint2 place [[thread_position_in_threadgroup]],
    uint2 threads [[threads_per_threadgroup]])
{
    const uint2 token = token_of(params, group.x);
    const ulong number = token.x * params.position_stride + token.y, row = params.indexed ? ulong(position_ids[number]) : group.x;
    const bool exists = row < params.cache_rows;
    if (!exists) {
        reject(error_flag, number);
    }
    const Cached<C> angles = {cos_cache + row * params.half_dim, sin_cache + row * params.half_dim, exists};
    rotate(Heads<T>(x, y, params, token, group.y, place.y, threads.y), angles, params, place.x, threads.x);
}
