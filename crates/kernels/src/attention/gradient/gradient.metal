// Attention's gradient: a simdgroup for each query, then one for each key. Its lanes take 32 keys (or queries) at once, each the whole dot products of its
// own; then each takes every 32nd element of the sums. COLUMNS is how many.

constant constexpr uint BLOCK = 32;

template <typename A, typename B>
inline float whole_dot(device const A* a, device const B* b, uint count) {
    float sum = 0.0f;
    for (uint i = 0; i < count; ++i) {
        sum = fma(widen(a[i]), widen(b[i]), sum);
    }
    return sum;
}

// A score, and its derivative by the dot product.
struct Score {
    float value;
    float slope;
};

// That of a key which query `t` of head `h` attends.
template <typename Q, typename K, typename M>
inline Score score_of(constant ScoreParams& p, device const Q* q, device const K* k, device const M* mask, uint b, uint h, uint t, uint key) {
    Score score = {whole_dot(q, k, uint(p.width)) * p.scale, p.scale};
    if (p.softcap > 0.0f) {
        const float capped = strict::tanh(score.value / p.softcap);
        score.value = p.softcap * capped;
        score.slope = fma(-capped, capped, 1.0f) * p.scale;
    }
    if (p.mask_type != NO_MASK) {
        score.value = masked(score.value, mask, row_of(p.mask.view, b, h, t) + key * ulong(p.mask.key));
    }
    return score;
}

// What a query's row of scores comes to: their maximum, one over the sum of the exponentials, and the product of the output with its gradient.
struct Statistics {
    float max;
    float scale;
    float product;
};

// A key's weight, and the gradient of its dot product.
struct Part {
    float weight;
    float gradient;
};

template <typename Y, typename V>
inline Part part_of(Score score, Statistics row, device const Y* dy, device const V* v, uint width) {
    const float weight = score.value == -INFINITY ? 0.0f : strict::exp_nonpositive(score.value - row.max) * row.scale;
    if (weight == 0.0f) {
        return {0.0f, 0.0f};
    }
    return {weight, weight * (whole_dot(dy, v, width) - row.product) * score.slope};
}

// The block's part of a sum of rows: of `count` elements, every 32nd of a lane's.
template <uint COLUMNS>
struct Sum {
    float total[COLUMNS];
    float part[COLUMNS];

    void clear() {
        for (uint c = 0; c < COLUMNS; ++c) {
            total[c] = 0.0f;
        }
    }

    void begin() {
        for (uint c = 0; c < COLUMNS; ++c) {
            part[c] = 0.0f;
        }
    }

    template <typename T>
    void add(float factor, device const T* row, uint count, uint lane) {
        for (uint c = 0; c < COLUMNS; ++c) {
            if (lane + BLOCK * c < count) {
                part[c] = fma(factor, widen(row[lane + BLOCK * c]), part[c]);
            }
        }
    }

    void end() {
        for (uint c = 0; c < COLUMNS; ++c) {
            total[c] += part[c];
        }
    }

    template <typename T>
    void store(device T* row, uint count, uint lane) const {
        for (uint c = 0; c < COLUMNS; ++c) {
            if (lane + BLOCK * c < count) {
                row[lane + BLOCK * c] = narrow<T>(total[c]);
            }
        }
    }
};

template <typename Q, typename K, typename M, uint COLUMNS>
[[kernel]] void attention_gradient_queries(
    device const Q* q [[buffer(0)]],
    device const K* k [[buffer(1)]],
    device const K* v [[buffer(2)]],
    device const M* mask [[buffer(3)]],
    device const int* positions [[buffer(4)]],
    device const int* lengths [[buffer(5)]],
    device const Q* y [[buffer(6)]],
    device const Q* dy [[buffer(7)]],
    device Q* dq [[buffer(8)]],
    device float* statistics [[buffer(9)]],
    constant Params& params [[buffer(10)]],
    uint group [[threadgroup_position_in_grid]],
    uint simdgroups [[simdgroups_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    constant ScoreParams& p = params.score;
    const ulong row = ulong(group) * simdgroups + simdgroup;
    if (row >= p.batch * p.heads * p.queries) {
        return;
    }
    const uint t = uint(row % p.queries), h = uint(row / p.queries % p.heads), b = uint(row / p.queries / p.heads);
    const uint kv_head = h / uint(p.heads / p.kv_heads), width = uint(p.width), value_width = uint(params.value_width);
    device const Q* query = q + row_of(p.q, b, h, t);
    device const Q* output = y + row_of(params.y, b, h, t);
    device const Q* output_gradient = dy + row_of(params.y, b, h, t);
    const KeyRange keys = attended(p, positions, lengths, b, t);

    float max = -INFINITY, sum = 0.0f;
    for (uint first = keys.start / BLOCK * BLOCK; first < keys.end; first += BLOCK) {
        const uint key = first + lane;
        float score = -INFINITY;
        if (keys.holds(key)) {
            score = score_of(p, query, k + row_of(p.k, b, kv_head, key), mask, b, h, t, key).value;
        }
        const float block_max = combine_lanes<Max>(score);
        if (block_max == -INFINITY) {
            continue;
        }
        const float block_sum = combine_lanes<Add>(strict::exp_nonpositive(score - block_max)), larger = Max::apply(max, block_max);
        sum = fma(sum, strict::exp_nonpositive(max - larger), block_sum * strict::exp_nonpositive(block_max - larger));
        max = larger;
    }
    const Statistics found = {max, max == -INFINITY ? 0.0f : 1.0f / sum, whole_dot(output_gradient, output, value_width)};
    if (lane == 0) {
        statistics[3 * row] = found.max;
        statistics[3 * row + 1] = found.scale;
        statistics[3 * row + 2] = found.product;
    }

    Sum<COLUMNS> gradient;
    gradient.clear();
    for (uint first = keys.start / BLOCK * BLOCK; first < keys.end; first += BLOCK) {
        const uint key = first + lane;
        Part part = {0.0f, 0.0f};
        if (keys.holds(key)) {
            const Score score = score_of(p, query, k + row_of(p.k, b, kv_head, key), mask, b, h, t, key);
            part = part_of(score, found, output_gradient, v + row_of(params.v, b, kv_head, key), value_width);
        }
        gradient.begin();
        for (ushort i = 0; i < BLOCK; ++i) {
            const float factor = shuffle(part.gradient, i);
            if (shuffle(part.weight, i) != 0.0f) {
                gradient.add(factor, k + row_of(p.k, b, kv_head, first + i), width, lane);
            }
        }
        gradient.end();
    }
    gradient.store(dq + row * width, width, lane);
}

template <typename Q, typename K, typename M, uint COLUMNS>
[[kernel]] void attention_gradient_keys(
    device const Q* q [[buffer(0)]],
    device const K* k [[buffer(1)]],
    device const K* v [[buffer(2)]],
    device const M* mask [[buffer(3)]],
    device const int* positions [[buffer(4)]],
    device const int* lengths [[buffer(5)]],
    device const Q* dy [[buffer(6)]],
    device const float* statistics [[buffer(7)]],
    device K* dk [[buffer(8)]],
    device K* dv [[buffer(9)]],
    constant Params& params [[buffer(10)]],
    uint group [[threadgroup_position_in_grid]],
    uint simdgroups [[simdgroups_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    constant ScoreParams& p = params.score;
    const ulong row = ulong(group) * simdgroups + simdgroup;
    if (row >= p.batch * p.kv_heads * p.keys) {
        return;
    }
    const uint key = uint(row % p.keys), kv_head = uint(row / p.keys % p.kv_heads), b = uint(row / p.keys / p.kv_heads);
    const uint shared = uint(p.heads / p.kv_heads), queries = uint(p.queries), width = uint(p.width), value_width = uint(params.value_width);
    device const K* own_key = k + row_of(p.k, b, kv_head, key);
    device const K* own_value = v + row_of(params.v, b, kv_head, key);

    Sum<COLUMNS> of_key, of_value;
    of_key.clear();
    of_value.clear();
    for (uint h = kv_head * shared; h < (kv_head + 1) * shared; ++h) {
        for (uint first = 0; first < queries; first += BLOCK) {
            const uint t = first + lane;
            const bool attends = t < queries && attended(p, positions, lengths, b, min(t, queries - 1)).holds(key);
            if (!simd_any(attends)) {
                continue;
            }
            Part part = {0.0f, 0.0f};
            if (attends) {
                const ulong at = 3 * ((ulong(b) * p.heads + h) * queries + t);
                const Score score = score_of(p, q + row_of(p.q, b, h, t), own_key, mask, b, h, t, key);
                const Statistics found = {statistics[at], statistics[at + 1], statistics[at + 2]};
                part = part_of(score, found, dy + row_of(params.y, b, h, t), own_value, value_width);
            }
            of_key.begin();
            of_value.begin();
            for (ushort i = 0; i < BLOCK; ++i) {
                const float factor = shuffle(part.gradient, i), weight = shuffle(part.weight, i);
                if (weight != 0.0f) {
                    of_key.add(factor, q + row_of(p.q, b, h, first + i), width, lane);
                    of_value.add(weight, dy + row_of(params.y, b, h, first + i), value_width, lane);
                }
            }
            of_key.end();
            of_value.end();
        }
    }
    of_key.store(dk + row * width, width, lane);
    of_value.store(dv + row * value_width, value_width, lane);
}
