// The gradients of a norm's weight and bias, column by column in the canonical order of their rows. A thread has SLOTS neighbouring columns of a share
// of the rows: those of lanes y, y + 16, y + 8 and y + 24 of one simdgroup of that order. A second launch adds up the shares.

constant constexpr uint THREADS = 128;

// Shares of a simdgroup.
constant constexpr uint SHARES = 8;

// Slots of a share's four lanes, which a tree adds up in this order.
constant constexpr uint LEVELS = 5;
constant constexpr uint LEAVES = 1 << LEVELS;

// Rows that are in flight at once: all of a slot's, if there are up to 32768.
constant constexpr uint AHEAD = 4;

// Sums of neighbouring columns while leaves come.
struct Tree {
    float held[LEVELS][SLOTS];

    // `sums` is a leaf, and becomes what it completes: after the last one, everything.
    void take(uint leaf, thread float (&sums)[SLOTS]) {
        bool completes = true;
#pragma unroll
        for (uint level = 0; level < LEVELS; ++level) {
            const bool second = (leaf >> level & 1) != 0;
            if (completes && second) {
                for (uint i = 0; i < SLOTS; ++i) {
                    sums[i] += held[level][i];
                }
            } else if (completes) {
                for (uint i = 0; i < SLOTS; ++i) {
                    held[level][i] = sums[i];
                }
            }
            completes = completes && second;
        }
    }
};

// Neighbouring elements of a row, as far as there are any.
template <typename T>
inline Words<T> load_some(device const T* from, uint count, bool wide) {
    if (wide) {
        return load_words(from);
    }
    float values[SLOTS];
    for (uint i = 0; i < SLOTS; ++i) {
        values[i] = i < count ? widen(from[i]) : 0.0f;
    }
    return narrow_words<T>(values);
}

template <typename T, uint CENTRED>
[[kernel, max_total_threads_per_threadgroup(THREADS)]] void norm_weight_gradient_part(
    device const T* x [[buffer(0)]],
    device const T* dy [[buffer(1)]],
    device const float* scale [[buffer(2)]],
    device const float* mean [[buffer(3)]],
    device float* parts [[buffer(4)]],
    constant Params& params [[buffer(5)]],
    uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]])
{
    const ulong columns = params.columns, rows = params.rows;
    const ulong blocks = (columns + SLOTS - 1) / SLOTS, place = ulong(group) * THREADS + index;
    const uint share = uint(place / blocks);
    if (share >= params.shares) {
        return;
    }
    const ulong column = place % blocks * SLOTS;
    const uint count = slots_left(column, columns);
    const bool wide = columns % SLOTS == 0 && is_wide(x) && is_wide(dy);
    const uint stride = SLOTS * row_threads(rows);

    Tree weight, bias;
    float sums[SLOTS], shifts[SLOTS];
    for (uint leaf = 0; leaf < LEAVES; ++leaf) {
        const uint lane = share % SHARES + (leaf / SLOTS % 2) * 16 + (leaf / SLOTS / 2) * 8;
        for (uint i = 0; i < SLOTS; ++i) {
            sums[i] = shifts[i] = 0.0f;
        }
        for (ulong k = SLOTS * (share / SHARES * 32 + lane) + leaf % SLOTS; k < rows; k += AHEAD * stride) {
            Words<T> row[AHEAD], slope[AHEAD];
            float inverse[AHEAD], centre[AHEAD];
#pragma unroll
            for (uint a = 0; a < AHEAD; ++a) {
                const ulong at = k + a * stride;
                if (at < rows) {
                    row[a] = load_some(x + at * columns + column, count, wide);
                    slope[a] = load_some(dy + at * columns + column, count, wide);
                    inverse[a] = scale[at];
                    centre[a] = CENTRED ? mean[at] : 0.0f;
                }
            }
#pragma unroll
            for (uint a = 0; a < AHEAD; ++a) {
                if (k + a * stride < rows) {
                    float elements[SLOTS], slopes[SLOTS];
                    widen(row[a], elements);
                    widen(slope[a], slopes);
                    for (uint i = 0; i < SLOTS; ++i) {
                        const float normalised = (CENTRED ? elements[i] - centre[a] : elements[i]) * inverse[a];
                        sums[i] += slopes[i] * normalised;
                        shifts[i] += slopes[i];
                    }
                }
            }
        }
        weight.take(leaf, sums);
        if (CENTRED) {
            bias.take(leaf, shifts);
        }
    }
    device float* to = parts + share * (CENTRED ? 2 * columns : columns) + column;
    for (uint i = 0; i < SLOTS; ++i) {
        if (i < count) {
            to[i] = sums[i];
            if (CENTRED) {
                to[columns + i] = shifts[i];
            }
        }
    }
}

template <typename T, uint CENTRED>
[[kernel]] void norm_weight_gradient(
    device const float* parts [[buffer(0)]],
    device float* dweight [[buffer(1)]],
    device float* dbias [[buffer(2)]],
    constant Params& params [[buffer(3)]],
    uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]])
{
    const ulong place = ulong(group) * THREADS + index, width = CENTRED ? 2 * params.columns : params.columns;
    if (place >= width) {
        return;
    }
    float total = 0.0f;
    for (uint first = 0; first < params.shares; first += SHARES) {
        float part[SHARES];
        for (uint i = 0; i < SHARES; ++i) {
            part[i] = parts[(first + i) * width + place];
        }
        const float even = (part[0] + part[4]) + (part[2] + part[6]), odd = (part[1] + part[5]) + (part[3] + part[7]);
        total = first == 0 ? even + odd : total + (even + odd);
    }
    if (place < params.columns) {
        dweight[place] = total;
    } else {
        dbias[place - params.columns] = total;
    }
}
