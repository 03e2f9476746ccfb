// Rotary position embedding of pairs half a head apart: a thread makes the cosines and sines of two neighbouring pairs once, and rotates both in up to HEADS
// heads of its token, or copies two elements that do not rotate.
//
// Memory: the input is read once, the output is written once, two neighbours at a time where both are aligned.

constant constexpr uint HEADS = 4;
constant constexpr uint THREADS = 256;

template <typename T>
struct alignas(2 * sizeof(T)) Two {
    T at[2];
};

// Two neighbours, where `from` is aligned in one word.
template <typename T>
inline Two<T> load_two(device const T* from, bool aligned) {
    if (aligned) {
        return *reinterpret_cast<device const Two<T>*>(from);
    }
    return {{from[0], from[1]}};
}

template <typename T>
inline void store_two(device T* to, T first, T second, bool aligned) {
    if (aligned) {
        *reinterpret_cast<device Two<T>*>(to) = {{first, second}};
    } else {
        to[0] = first;
        to[1] = second;
    }
}

template <typename T, typename P>
[[kernel]] void rope_pairs(
    device const T* x [[buffer(0)]],
    device const P* positions [[buffer(1)]],
    device const float* frequencies [[buffer(2)]],
    device T* y [[buffer(3)]],
    constant Params& params [[buffer(4)]],
    uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]])
{
    const uint tokens = uint(params.extents[1]), heads = uint(params.extents[2]), pairs = params.half_dim;
    const uint slots = (uint(params.extents[3]) - pairs) / 2, blocks = (heads + HEADS - 1) / HEADS;
    const uint item = group * THREADS + index, row = item / slots, place = row / blocks;
    if (place >= uint(params.extents[0]) * tokens) {
        return;
    }
    const uint first = 2 * (item - row * slots), head = (row - place * blocks) * HEADS, count = min(HEADS, heads - head);
    const uint batch = place / tokens, token = place - batch * tokens, apart = first < pairs ? first : first + pairs;
    device const T* from = x + (long(params.x_origin) + long(batch) * params.x[0] + long(token) * params.x[1] + long(head) * params.x[2] + apart);
    device T* to = y + (batch * params.y[0] + token * params.y[1] + head * params.y[2] + apart);
    const ulong steps = (ulong(params.x[2]) | ulong(params.y[2]) | pairs) * sizeof(T);
    const bool aligned = ((reinterpret_cast<ulong>(from) | reinterpret_cast<ulong>(to) | steps) & (alignof(Two<T>) - 1)) == 0;
    if (first >= pairs) {
        for (uint i = 0; i < count; ++i) {
            const Two<T> copied = load_two(from + long(i) * params.x[2], aligned);
            store_two(to + i * params.y[2], copied.at[0], copied.at[1], aligned);
        }
        return;
    }
    const float position = float(positions[batch * params.position_stride + token]);
    const float2 angle = position * float2(frequencies[first], frequencies[first + 1]);
    Two<T> u[HEADS], v[HEADS];
    for (uint i = 0; i < HEADS; ++i) {
        if (i < count) {
            u[i] = load_two(from + long(i) * params.x[2], aligned);
            v[i] = load_two(from + (long(i) * params.x[2] + pairs), aligned);
        }
    }
    const float2 cosine = float2(strict::cos(angle.x), strict::cos(angle.y)), sine = float2(strict::sin(angle.x), strict::sin(angle.y));
    for (uint i = 0; i < HEADS; ++i) {
        if (i < count) {
            const float2 a = float2(widen(u[i].at[0]), widen(u[i].at[1])), b = float2(widen(v[i].at[0]), widen(v[i].at[1]));
            const float2 low = a * cosine - b * sine, high = b * cosine + a * sine;
            store_two(to + i * params.y[2], narrow<T>(low.x), narrow<T>(low.y), aligned);
            store_two(to + (i * params.y[2] + pairs), narrow<T>(high.x), narrow<T>(high.y), aligned);
        }
    }
}
