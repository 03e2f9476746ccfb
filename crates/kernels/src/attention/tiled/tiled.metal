// Attention of many queries by simdgroup matrices. A threadgroup of four simdgroups has 32 rows, eight a simdgroup (a row is a query of one of the heads that
// share keys), and walks over their keys 32 at a time: keys and values come from memory once for each tile, through threadgroup memory. Products take
// operands in their own types and sum in f32; nothing is rounded to a narrower type before the output.
//
// Which elements of a matrix a thread holds is not documented: what is done row by row goes through a strip of threadgroup memory, where lane l has
// columns 8 (l % 4) … 8 (l % 4) + 7 of row l / 4.

constant constexpr uint TILE_ROWS = 32;
constant constexpr uint TILE_KEYS = 32;
constant constexpr uint TILE_THREADS = 128;
// Rows and columns of a matrix, and matrices side by side in a strip.
constant constexpr uint SIDE = 8;
constant constexpr uint ABREAST = TILE_KEYS / SIDE;
// Bytes from row to row of a strip: a multiple of 16 that spreads rows over the banks.
constant constexpr uint STRIP_PITCH = 4 * TILE_KEYS + 16;

typedef simdgroup_matrix<float, 8, 8> Sums;

// Elements e … e + 7 of a row of `width`; zeros beyond its end, and for a row that does not exist.
template <typename T>
inline void copy_slots(threadgroup T* to, device const T* row, uint e, uint width, bool exists) {
    if (exists && e + SLOTS <= width && is_wide(row + e)) {
        const Words<T> words = load_words(row + e);
        for (uint i = 0; i < sizeof(T) / 2; ++i) {
            reinterpret_cast<threadgroup uint4*>(to)[i] = words.at[i];
        }
        return;
    }
    for (uint i = 0; i < SLOTS; ++i) {
        to[i] = exists && e + i < width ? row[e + i] : T(0);
    }
}

// Keys or values of a tile in threadgroup memory.
template <typename T, uint WIDTH>
struct Staged {
    // Elements from row to row: a multiple of 16 bytes that spreads rows over the banks.
    static constexpr constant uint PITCH = WIDTH + 16 / sizeof(T);

    // Rows `first` … `first` + 31; zeros for those that are not among `keys`: what lies there may be no number.
    static void fill(threadgroup T* to, device const T* from, long step, uint width, KeyRange keys, uint first, uint thread_index) {
        constexpr uint WORDS = WIDTH / SLOTS;
        for (uint i = thread_index; i < TILE_KEYS * WORDS; i += TILE_THREADS) {
            const uint row = i / WORDS, e = i % WORDS * SLOTS, key = first + row;
            const bool exists = keys.holds(key);
            copy_slots(to + row * PITCH + e, from + (exists ? long(key) * step : 0l), e, width, exists);
        }
    }
};

// The keys that any of the simdgroup's lanes attends.
inline KeyRange united(KeyRange keys) {
    return {simd_min(keys.is_empty() ? 0xffffffffu : keys.start), simd_max(keys.is_empty() ? 0u : keys.end)};
}

// The softmax of a lane's row, which four lanes share: its greatest score so far, in powers of two, and the sum of weights.
struct RunningSoftmax {
    float greatest;
    float sum;

    // Makes weights of eight scores; what sums before are multiplied by. A weight that is no number counts in the sum alone, which makes the row none.
    float weigh(thread float (&scores)[SLOTS]) {
        float most = greatest;
        for (uint i = 0; i < SLOTS; ++i) {
            most = max(most, scores[i]);
        }
        most = max(most, simd_shuffle_xor(most, ushort(1)));
        most = max(most, simd_shuffle_xor(most, ushort(2)));
        const float factor = greatest == -INFINITY ? 1.0f : fast::exp2(greatest - most);
        float added = 0.0f;
        for (uint i = 0; i < SLOTS; ++i) {
            const float weight = scores[i] == -INFINITY ? 0.0f : fast::exp2(scores[i] - most);
            added += weight;
            scores[i] = isnan(weight) ? 0.0f : weight;
        }
        added += simd_shuffle_xor(added, ushort(1));
        added += simd_shuffle_xor(added, ushort(2));
        greatest = most;
        sum = fma(sum, factor, added);
        return factor;
    }
};

// A simdgroup's eight rows. WIDTH and VALUE_WIDTH are the elements of keys and values, rounded up to whole matrices.
template <typename Q, typename KV, uint WIDTH, uint VALUE_WIDTH>
struct TileRows {
    typedef Staged<KV, WIDTH> Keys;
    typedef Staged<KV, VALUE_WIDTH> Values;
    // Elements from row to row of a strip of floats.
    static constexpr constant uint PITCH = STRIP_PITCH / sizeof(float);

    threadgroup float* strip;
    uint lane;
    simdgroup_matrix<Q, 8, 8> queries[WIDTH / SIDE];
    Sums outputs[VALUE_WIDTH / SIDE];

    TileRows(threadgroup float* strip, uint lane) : strip(strip), lane(lane) {
        for (uint i = 0; i < VALUE_WIDTH / SIDE; ++i) {
            outputs[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        }
    }

    uint row() const { return lane / 4; }
    uint column() const { return lane % 4 * SLOTS; }
    threadgroup float4* slots() const { return reinterpret_cast<threadgroup float4*>(strip + row() * PITCH + column()); }

    // Takes the queries; `query` is that of the lane's row.
    void load(device const Q* query, uint width) {
        constexpr uint Q_PITCH = STRIP_PITCH / sizeof(Q);
        threadgroup Q* staged = reinterpret_cast<threadgroup Q*>(strip);
        for (uint first = 0; first < WIDTH; first += TILE_KEYS) {
            simdgroup_barrier(mem_flags::mem_threadgroup);
            copy_slots(staged + row() * Q_PITCH + column(), query, first + column(), width, true);
            simdgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
            for (uint i = 0; i < ABREAST; ++i) {
                if (first / SIDE + i < WIDTH / SIDE) {
                    simdgroup_load(queries[first / SIDE + i], staged + i * SIDE, Q_PITCH);
                }
            }
        }
    }

    // Leaves the dot products with all keys in the strip. What is in the strip from here to `add` is handed over by the threadgroup's barriers.
    void score(threadgroup const KV* keys) {
        Sums sums[ABREAST];
        for (uint i = 0; i < ABREAST; ++i) {
            sums[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        }
#pragma unroll
        for (uint d = 0; d < WIDTH / SIDE; ++d) {
            for (uint i = 0; i < ABREAST; ++i) {
                simdgroup_matrix<KV, 8, 8> key;
                simdgroup_load(key, keys + i * SIDE * Keys::PITCH + d * SIDE, Keys::PITCH, ulong2(0), true);
                simdgroup_multiply_accumulate(sums[i], queries[d], key, sums[i]);
            }
        }
        for (uint i = 0; i < ABREAST; ++i) {
            simdgroup_store(sums[i], strip + i * SIDE, PITCH);
        }
    }

    void take_scores(thread float (&scores)[SLOTS]) const {
        for (uint i = 0; i < SLOTS; ++i) {
            scores[i] = slots()[i / 4][i % 4];
        }
    }

    // Multiplies each row by its factor, if any is not one.
    void rescale(float factor) {
        if (!simd_any(factor != 1.0f)) {
            return;
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
        for (uint c = lane % 4 * 2; c < lane % 4 * 2 + 2; ++c) {
            strip[row() * PITCH + c] = c == row() ? factor : 0.0f;
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
        Sums factors;
        simdgroup_load(factors, strip, PITCH);
        for (uint i = 0; i < VALUE_WIDTH / SIDE; ++i) {
            simdgroup_multiply(outputs[i], factors, outputs[i]);
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
    }

    void put_weights(thread const float (&weights)[SLOTS]) {
        slots()[0] = float4(weights[0], weights[1], weights[2], weights[3]);
        slots()[1] = float4(weights[4], weights[5], weights[6], weights[7]);
    }

    // Adds the values by the weights in the strip.
    void add(threadgroup const KV* values) {
        Sums weights[ABREAST];
        for (uint i = 0; i < ABREAST; ++i) {
            simdgroup_load(weights[i], strip + i * SIDE, PITCH);
        }
#pragma unroll
        for (uint e = 0; e < VALUE_WIDTH / SIDE; ++e) {
            for (uint i = 0; i < ABREAST; ++i) {
                simdgroup_matrix<KV, 8, 8> value;
                simdgroup_load(value, values + i * SIDE * Values::PITCH + e * SIDE, Values::PITCH);
                simdgroup_multiply_accumulate(outputs[e], weights[i], value, outputs[e]);
            }
        }
    }

    // Writes the outputs by the lane's factor to the lane's row `y`, if that exists.
    void store(device Q* y, uint width, bool exists, float factor) {
#pragma unroll
        for (uint first = 0; first < VALUE_WIDTH; first += TILE_KEYS) {
            simdgroup_barrier(mem_flags::mem_threadgroup);
            for (uint i = 0; i < ABREAST && first / SIDE + i < VALUE_WIDTH / SIDE; ++i) {
                simdgroup_store(outputs[first / SIDE + i], strip + i * SIDE, PITCH);
            }
            simdgroup_barrier(mem_flags::mem_threadgroup);
            const uint e = first + column();
            if (!exists || e >= width) {
                continue;
            }
            float values[SLOTS];
            take_scores(values);
            for (uint i = 0; i < SLOTS; ++i) {
                values[i] *= factor;
            }
            if (e + SLOTS <= width && is_wide(y + e)) {
                store_wide(y + e, values);
            } else {
                for (uint i = 0; i < SLOTS && e + i < width; ++i) {
                    y[e + i] = narrow<Q>(values[i]);
                }
            }
        }
    }
};

template <typename Q, typename KV, typename M, uint WIDTH, uint VALUE_WIDTH>
[[kernel, max_total_threads_per_threadgroup(TILE_THREADS)]] void attention_tiled(
    device const Q* q [[buffer(0)]],
    device const KV* k [[buffer(1)]],
    device const KV* v [[buffer(2)]],
    device const M* mask [[buffer(3)]],
    device const int* positions [[buffer(4)]],
    device const int* lengths [[buffer(5)]],
    device Q* y [[buffer(6)]],
    constant Params& p [[buffer(7)]],
    threadgroup float* shared [[threadgroup(0)]],
    uint index [[threadgroup_position_in_grid]],
    uint count [[threadgroups_per_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    typedef TileRows<Q, KV, WIDTH, VALUE_WIDTH> Rows;
    const uint kv_heads = uint(p.score.kv_heads), group = uint(p.score.heads) / kv_heads, rows = uint(p.score.queries) * group;
    // The last queries may attend most keys: they begin.
    const uint turn = count - 1 - index, heads = kv_heads * uint(p.score.batch);
    const uint first = turn / heads * TILE_ROWS, batch = turn % heads / kv_heads, kv_head = turn % heads % kv_heads;

    Rows own(shared + simdgroup * SIDE * Rows::PITCH, lane);
    threadgroup KV* staged = reinterpret_cast<threadgroup KV*>(shared + TILE_ROWS * Rows::PITCH);
    // A row that does not exist is taken for the last one.
    const uint in_tile = simdgroup * SIDE + own.row(), row = min(first + in_tile, rows - 1);
    const uint query = row / group, head = kv_head * group + row % group;
    own.load(q + row_of(p.score.q, batch, head, query), uint(p.score.width));

    // A lane a row; then that of the lane's own row, and those of all the simdgroup's.
    const KeyRange of_tile = attended(p.score, positions, lengths, batch, min(first + lane, rows - 1) / group);
    const KeyRange all = united(of_tile), keys = {simd_shuffle(of_tile.start, ushort(in_tile)), simd_shuffle(of_tile.end, ushort(in_tile))};
    const KeyRange ours = united(keys);
    device const KV* first_key = k + row_of(p.score.k, batch, kv_head, 0);
    device const KV* first_value = v + row_of(p.v, batch, kv_head, 0);
    const uint thread_index = simdgroup * 32 + lane;

    RunningSoftmax softmax = {-INFINITY, 0.0f};
    for (uint block = all.start / TILE_KEYS * TILE_KEYS; block < all.end; block += TILE_KEYS) {
        const bool attends = ours.start < block + TILE_KEYS && block < ours.end;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        Rows::Keys::fill(staged, first_key, p.score.k.token, uint(p.score.width), all, block, thread_index);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (attends) {
            own.score(staged);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        Rows::Values::fill(staged, first_value, p.v.token, uint(p.value_width), all, block, thread_index);
        if (attends) {
            float scores[SLOTS];
            own.take_scores(scores);
            for (uint i = 0; i < SLOTS; ++i) {
                const uint key = block + own.column() + i;
                scores[i] = keys.holds(key) ? adjusted(p.score, scores[i] * p.score.scale, mask, batch, head, query, key) * M_LOG2E_F : -INFINITY;
            }
            own.rescale(softmax.weigh(scores));
            own.put_weights(scores);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (attends) {
            own.add(staged);
        }
    }
    own.store(y + row_of(p.y, batch, head, query), uint(p.value_width), first + in_tile < rows, softmax.sum == 0.0f ? 0.0f : 1.0f / softmax.sum);
}
