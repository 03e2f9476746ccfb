// The gradients of rms_norm and layer_norm by their rows and, if SUMMED, what shares of the rows add to those by weight and bias.
//
// Rows that fit are kept in registers, and x and the gradient of the output are read once; others are read once from memory, then from the caches. If SUMMED,
// a threadgroup takes a share of the rows, `walkers` of them at a time, and a thread adds up its own columns of the rows of its walker: in threadgroup memory,
// or if SUMMED is 2 in device memory.

// Two sums.
struct AddBoth {
    typedef float2 A;
    static A apply(A a, A b) { return a + b; }
};

inline void clear(thread float (&slots)[SLOTS]) {
    for (uint i = 0; i < SLOTS; ++i) {
        slots[i] = 0.0f;
    }
}

// A row of x and of the gradient of what the norm made of it, in registers.
template <typename T, uint VISITS, uint COUNT>
struct NormRow {
    typedef RowShare<T, VISITS, COUNT> Share;

    Share share;
    typename Share::template Kept<T> x;
    typename Share::template Kept<T> dy;

    NormRow(RowThread t, ulong n, bool wide, device const T* x_row, device const T* dy_row) : share(t, uint(n), wide) {
        share.template load_once<WORDS>(x_row, 0.0f, x);
        share.template load_once<WORDS>(dy_row, 0.0f, dy);
    }

    // A visit becomes that of another row.
    void replace(uint v, device const T* x_row, device const T* dy_row) {
        share.template load_once<WORDS>(x_row, v, 0.0f, x);
        share.template load_once<WORDS>(dy_row, v, 0.0f, dy);
    }

    uint visits() const { return VISITS; }
    bool has(uint v) const { return share.has(v); }
    uint left(uint v) const { return share.left(v); }
    void load_x(uint v, thread float (&slots)[SLOTS]) const { x.widen_visit(v, slots); }
    void load_dy(uint v, thread float (&slots)[SLOTS]) const { dy.widen_visit(v, slots); }

    template <typename U>
    void load(device const U* row, uint v, thread float (&slots)[SLOTS]) const {
        share.load_visit(row, v, slots);
    }

    void store(device T* row, uint v, thread const float (&slots)[SLOTS]) const { share.store(row, v, slots); }

    // Where four of a visit's slots are in the row.
    ulong place(uint v, uint half_slots) const { return share.first + (Share::PIECES > 1 ? share.at(v, half_slots) : share.at(v, 0) + 4 * half_slots); }

    float2 combine(thread const float (&a)[SLOTS], thread const float (&b)[SLOTS], threadgroup float2* partial) const {
        const float2 sums(share.template combine_in_simdgroup<Add>(a), share.template combine_in_simdgroup<Add>(b));
        return combine_simdgroups<AddBoth>(sums, share.t, partial);
    }
};

// The same in memory.
template <typename T, uint COUNT>
struct NormRow<T, 0, COUNT> {
    RowThread t;
    RowReader<T> x;
    RowReader<T> dy;

    NormRow(RowThread t, ulong n, bool, device const T* x_row, device const T* dy_row) : t(t), x(x_row, 1, n), dy(dy_row, 1, n) {}

    void replace(uint, device const T*, device const T*) {}

    ulong at(uint v) const { return SLOTS * (ulong(v) * t.count + t.index); }
    ulong place(uint v, uint half_slots) const { return at(v) + 4 * half_slots; }
    uint visits() const { return uint((x.n + SLOTS * t.count - 1) / (SLOTS * t.count)); }
    bool has(uint v) const { return at(v) < x.n; }
    uint left(uint v) const { return slots_left(at(v), x.n); }
    void load_x(uint v, thread float (&slots)[SLOTS]) const { x.load(at(v), 0.0f, slots); }
    void load_dy(uint v, thread float (&slots)[SLOTS]) const { dy.load(at(v), 0.0f, slots); }

    template <typename U>
    void load(device const U* row, uint v, thread float (&slots)[SLOTS]) const {
        RowReader<U>(row, 1, x.n).load(at(v), 0.0f, slots);
    }

    void store(device T* row, uint v, thread const float (&slots)[SLOTS]) const { RowWriter<T>(row, 1, x.n).store(at(v), slots); }

    float2 combine(thread const float (&a)[SLOTS], thread const float (&b)[SLOTS], threadgroup float2* partial) const {
        return combine_simdgroups<AddBoth>(float2(combine_simdgroup<Add>(combine_slots<Add>(a), t), combine_simdgroup<Add>(combine_slots<Add>(b), t)), t, partial);
    }
};

// What threads add up of their columns, for the weight and, if CENTRED, for the bias: each in words of its own of the memory that a threadgroup shares, so
// that registers have only a row.
template <uint CENTRED, typename Memory>
struct ColumnSums {
    static constexpr constant uint LINES = 1 + CENTRED;

    Memory words;
    uint threads;
    uint visits;

    ColumnSums(Memory words, uint thread_index, uint threads, uint visits) : words(words + thread_index), threads(threads), visits(visits) {
        for (uint i = 0; i < 2 * LINES * visits; ++i) {
            this->words[i * threads] = 0.0f;
        }
    }

    uint at(uint v, uint line, uint half_slots) const { return (2 * (v * LINES + line) + half_slots) * threads; }

    void add(uint v, thread const float (&normalised)[SLOTS], thread const float (&dy)[SLOTS]) const {
        for (uint i = 0; i < SLOTS; i += 4) {
            const float4 slopes(dy[i], dy[i + 1], dy[i + 2], dy[i + 3]), values(normalised[i], normalised[i + 1], normalised[i + 2], normalised[i + 3]);
            words[at(v, 0, i / 4)] = fma(slopes, values, words[at(v, 0, i / 4)]);
            if (CENTRED) {
                words[at(v, 1, i / 4)] += slopes;
            }
        }
    }

    // The sums of the walkers, `distance` threads apart, one after the other.
    float4 total(uint v, uint line, uint half_slots, uint walkers, uint distance) const {
        float4 sum = words[at(v, line, half_slots)];
        for (uint walker = 1; walker < walkers; ++walker) {
            sum += words[at(v, line, half_slots) + walker * distance];
        }
        return sum;
    }
};

// Without them.
struct NoSums {
    void add(uint, thread const float (&)[SLOTS], thread const float (&)[SLOTS]) const {}
};

// The gradient times the weight, if there is one.
template <typename Row, typename W>
inline void load_weighted(thread const Row& row, device const W* weight, uint v, thread float (&slots)[SLOTS]) {
    row.load_dy(v, slots);
    if (weight) {
        float factors[SLOTS];
        row.load(weight, v, factors);
        for (uint i = 0; i < SLOTS; ++i) {
            slots[i] = i < row.left(v) ? slots[i] * factors[i] : 0.0f;
        }
    }
}

// What a row's gradient is made of.
struct NormSums {
    float mean;
    float inverse;
    float shift;
    float slope;
};

// `partial` is not to be that of the call before.
template <uint CENTRED, typename Row, typename W>
inline NormSums sums_of(thread const Row& row, device const W* weight, float n, float epsilon, threadgroup float2* partial) {
    float x[SLOTS], h[SLOTS], a[SLOTS], b[SLOTS];
    NormSums sums = {0.0f, 0.0f, 0.0f, 0.0f};
    if (CENTRED) {
        clear(a);
        clear(b);
#pragma unroll
        for (uint v = 0; v < row.visits(); ++v) {
            if (row.has(v)) {
                row.load_x(v, x);
                load_weighted(row, weight, v, h);
                for (uint i = 0; i < SLOTS; ++i) {
                    a[i] += x[i];
                    b[i] += h[i];
                }
            }
        }
        const float2 totals = row.combine(a, b, partial + 32);
        sums.mean = totals.x / n;
        sums.shift = totals.y / n;
    }
    clear(a);
    clear(b);
#pragma unroll
    for (uint v = 0; v < row.visits(); ++v) {
        if (row.has(v)) {
            row.load_x(v, x);
            load_weighted(row, weight, v, h);
            for (uint i = 0; i < SLOTS; ++i) {
                const float centred = CENTRED && i >= row.left(v) ? 0.0f : x[i] - sums.mean;
                a[i] = fma(centred, centred, a[i]);
                b[i] = fma(h[i], centred, b[i]);
            }
        }
    }
    const float2 totals = row.combine(a, b, partial);
    sums.inverse = 1.0f / sqrt(totals.x / n + epsilon);
    sums.slope = totals.y * sums.inverse / n;
    return sums;
}

// A row in memory, and the gradient of what the norm made of it; none if they are null.
template <typename T>
struct RowAt {
    device const T* x;
    device const T* dy;
};

// The visits of `next` are sent for in place of the row's as soon as these have been read.
template <uint CENTRED, typename Row, typename Columns, typename T, typename W>
inline void store_row(
    thread Row& row, thread const Columns& columns, NormSums sums, device const W* weight, device const T* addend, device T* dx, RowAt<T> next)
{
    float x[SLOTS], dy[SLOTS], h[SLOTS];
#pragma unroll
    for (uint v = 0; v < row.visits(); ++v) {
        if (row.has(v)) {
            row.load_x(v, x);
            row.load_dy(v, dy);
            load_weighted(row, weight, v, h);
            for (uint i = 0; i < SLOTS; ++i) {
                x[i] = (x[i] - sums.mean) * sums.inverse;
                h[i] = ((CENTRED ? h[i] - sums.shift : h[i]) - x[i] * sums.slope) * sums.inverse;
            }
            columns.add(v, x, dy);
            if (addend) {
                row.load(addend, v, x);
                for (uint i = 0; i < SLOTS; ++i) {
                    h[i] = x[i] + widen(narrow<T>(h[i]));
                }
            }
            row.store(dx, v, h);
        }
        if (next.x) {
            row.replace(v, next.x, next.dy);
        }
    }
}

// What a thread needs of a launch.
template <typename T, typename W>
struct Norm {
    RowThread t;
    ulong n;
    bool wide;
    float epsilon;
    device const T* x;
    device const W* weight;
    device const T* dy;
    device const T* addend;
    device T* dx;
    threadgroup float2* partial;

    // A row, or none from `end` on: of those that are kept in several visits there is one. Calls in turn have `parity` 0 and 1.
    template <uint CENTRED, uint VISITS, uint COUNT, typename Columns>
    void differentiate(ulong at, ulong end, uint parity, thread const Columns& columns) const {
        const ulong start = at < end ? at * n : 0;
        NormRow<T, VISITS, COUNT> row(t, at < end ? n : 0, wide, x + start, dy + start);
        differentiate<CENTRED>(row, start, parity, columns, RowAt<T>{nullptr, nullptr});
    }

    // The row that begins at `start`; then it is that of `next`.
    template <uint CENTRED, typename Row, typename Columns>
    void differentiate(thread Row& row, ulong start, uint parity, thread const Columns& columns, RowAt<T> next) const {
        const NormSums sums = sums_of<CENTRED>(row, weight, float(n), epsilon, partial + (CENTRED ? 0 : 32 * parity));
        store_row<CENTRED>(row, columns, sums, weight, addend ? addend + start : nullptr, dx + start, next);
    }
};

template <uint CENTRED, uint VISITS, uint COUNT, typename T, typename W, typename Memory>
inline void walk(thread const Norm<T, W>& norm, constant Params& params, uint group, uint threads, Memory words, device float* parts) {
    const RowThread t = norm.t;
    const uint thread_index = 32 * t.simdgroup + t.lane, walkers = params.walkers, walker = thread_index >> ctz(t.count);
    const ulong n = norm.n, begin = ulong(group) * params.share, end = min(begin + params.share, params.rows.outer);
    const uint steps = (uint(end - begin) + walkers - 1) / walkers, visits = VISITS > 0 ? VISITS : uint((n + SLOTS * t.count - 1) / (SLOTS * t.count));
    const ColumnSums<CENTRED, Memory> columns(words, thread_index, threads, visits);
    ulong at = walker < walkers ? begin + walker : end;
    if (VISITS > 1) {
        const ulong first = at < end ? at * n : 0;
        NormRow<T, VISITS, COUNT> row(t, at < end ? n : 0, norm.wide, norm.x + first, norm.dy + first);
        for (uint step = 0; at < end; ++step) {
            const ulong start = at * n, next = start + walkers * n;
            at += walkers;
            const RowAt<T> then = {at < end ? norm.x + next : nullptr, at < end ? norm.dy + next : nullptr};
            norm.template differentiate<CENTRED>(row, start, step & 1, columns, then);
        }
    } else {
        for (uint step = 0; step < steps; ++step) {
            norm.template differentiate<CENTRED, VISITS, COUNT>(at, end, step & 1, columns);
            at += walkers;
        }
    }
    if (walkers > 1) {
        threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    }
    if (walker > 0) {
        return;
    }
    const NormRow<T, VISITS, COUNT> row(t, 0, false, norm.x, norm.dy);
    device float* part = parts + group * (1 + CENTRED) * n;
    for (uint v = 0; v < visits; ++v) {
        for (uint i = 0; i < 2 * (1 + CENTRED); ++i) {
            const float4 total = columns.total(v, i / 2, i % 2, walkers, t.count);
            const ulong k = row.place(v, i % 2);
            device float* to = part + i / 2 * n + k;
            if (VISITS > 0 && k < n) {
                *reinterpret_cast<device float4*>(to) = total;
            }
            for (uint j = 0; VISITS == 0 && j < 4; ++j) {
                if (k + j < n) {
                    to[j] = total[j];
                }
            }
        }
    }
}

template <typename T, typename W, uint CENTRED, uint SUMMED, uint VISITS, uint COUNT, uint THREADS>
[[kernel, max_total_threads_per_threadgroup(THREADS)]] void norm_gradient(
    device const T* x [[buffer(0)]],
    device const W* weight [[buffer(1)]],
    device const T* dy [[buffer(2)]],
    device const T* addend [[buffer(3)]],
    device T* dx [[buffer(4)]],
    device float* parts [[buffer(5)]],
    device float* sums [[buffer(6)]],
    constant Params& params [[buffer(7)]],
    threadgroup float2* memory [[threadgroup(0)]],
    uint group [[threadgroup_position_in_grid]],
    uint threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const RowThread t = row_thread<COUNT>(params.rows.length, group, threads, simdgroup, lane);
    const ulong n = VISITS > 0 ? uint(params.rows.length) : params.rows.length;
    const bool wide = is_wide(x) & is_wide(weight) & is_wide(dy) & is_wide(addend) & is_wide(dx);
    const Norm<T, W> norm = {
        t, n, wide, params.epsilon, x, params.weighted != 0 ? weight : nullptr, dy, params.added != 0 ? addend : nullptr, dx, memory};
    if (SUMMED == 0) {
        if (VISITS <= 1 || t.row < params.rows.outer) {
            norm.template differentiate<CENTRED, VISITS, COUNT>(t.row, params.rows.outer, 0, NoSums());
        }
    } else if (SUMMED == 1) {
        walk<CENTRED, VISITS, COUNT>(norm, params, group, threads, reinterpret_cast<threadgroup float4*>(memory + 64), parts);
    } else {
        walk<CENTRED, VISITS, COUNT>(norm, params, group, threads, reinterpret_cast<device float4*>(sums) + group * params.words, parts);
    }
}
