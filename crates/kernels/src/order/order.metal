// The canonical order of row reductions. A row is shared by T(n) threads; thread t owns the accumulators 8t … 8t + 7 of 8 T, and accumulator j
// folds the elements k = j (mod 8 T) in ascending order. Then a thread's accumulators pairwise, the lanes of a simdgroup by an xor
// tree (16, 8, 4, 2, 1), the simdgroups in index order.
//
// Rows of up to 1024 elements have one simdgroup, of which only the lanes that own elements are given to a row: accumulators without
// elements change nothing, and short rows share a simdgroup.

struct Add {
    typedef float A;
    static constexpr constant float identity = 0.0f;
    static float apply(float a, float b) { return a + b; }
};

// The larger of two numbers, in one instruction; either if one is a NaN.
struct Larger {
    typedef float A;
    static constexpr constant float identity = -INFINITY;
    static float apply(float a, float b) { return fmax(a, b); }
};

// The larger; NaN if either is.
struct Max {
    typedef float A;
    static constexpr constant float identity = -INFINITY;
    static float apply(float a, float b) { return isnan(a) || a > b ? a : b; }
};

// The smallest power of two that is not below n.
inline uint next_power_of_two(uint n) {
    return 1u << (32 - clz(max(n, 1u) - 1));
}

// T(n).
inline uint row_threads(ulong n) {
    return next_power_of_two(uint(clamp((n + 31) / 32, 32ul, 1024ul)));
}

// A thread's row, and its place among the `count` threads that share it, a power of two.
struct RowThread {
    ulong row;
    uint index;
    uint count;
    uint lane;
    uint simdgroup;
};

// Where a threadgroup is among those of a launch, and a thread in it.
struct Here {
    uint group;
    uint groups;
    uint simdgroup;
    uint lane;

    uint thread_index() const { return 32 * simdgroup + lane; }
};

// Threadgroups of `threads` threads hold whole rows.
inline RowThread row_thread(ulong n, uint group, uint threads, uint simdgroup, uint lane) {
    const uint count = min(next_power_of_two(uint(min((n + SLOTS - 1) / SLOTS, 1024ul))), row_threads(n));
    const uint index = 32 * simdgroup + lane;
    return {(ulong(group) * threads + index) >> ctz(count), index & (count - 1), count, lane, simdgroup};
}

// The same where the host says how many threads share a row, if that is a simdgroup or a whole threadgroup of several; else COUNT is zero.
template <uint COUNT>
inline RowThread row_thread(ulong n, uint group, uint threads, uint simdgroup, uint lane) {
    if (COUNT == 0) {
        return row_thread(n, group, threads, simdgroup, lane);
    }
    if (COUNT == 32) {
        return {ulong(group) * (threads / 32) + simdgroup, lane, COUNT, lane, simdgroup};
    }
    return {group, 32 * simdgroup + lane, COUNT, lane, simdgroup};
}

// Where a row begins, if its elements are neighbours and rows follow each other. The length of one that is kept in registers has 32 bits.
template <uint VISITS>
inline ulong row_start(RowThread t, ulong length) {
    return t.row * (VISITS > 0 ? ulong(uint(length)) : length);
}

template <typename T>
inline T shuffle_xor(T value, ushort mask) {
    return simd_shuffle_xor(value, mask);
}

template <typename T>
inline T shuffle(T value, ushort lane) {
    return simd_shuffle(value, lane);
}

// Simdgroups exchange at most 32 bits at once.
inline ulong shuffle_xor(ulong value, ushort mask) {
    return as_type<ulong>(simd_shuffle_xor(as_type<uint2>(value), mask));
}

inline ulong shuffle(ulong value, ushort lane) {
    return as_type<ulong>(simd_shuffle(as_type<uint2>(value), lane));
}

inline long shuffle_xor(long value, ushort mask) {
    return long(shuffle_xor(ulong(value), mask));
}

inline long shuffle(long value, ushort lane) {
    return long(shuffle(ulong(value), lane));
}

// `Op::A` is what accumulators hold.
template <typename Op>
inline typename Op::A combine_slots(thread const typename Op::A* s) {
    return Op::apply(Op::apply(Op::apply(s[0], s[1]), Op::apply(s[2], s[3])), Op::apply(Op::apply(s[4], s[5]), Op::apply(s[6], s[7])));
}

// The first of `count` neighbouring lanes gets their result in canonical order.
template <typename Op>
inline typename Op::A combine_lanes(typename Op::A value, uint count = 32) {
    for (ushort mask = count / 2; mask > 0; mask >>= 1) {
        value = Op::apply(value, shuffle_xor(value, mask));
    }
    return value;
}

// The row's result from those of its simdgroups, for every thread. `partial` holds one value for each simdgroup and is not to be written again before
// a barrier.
template <typename Op>
inline typename Op::A combine_simdgroups(typename Op::A value, RowThread t, threadgroup typename Op::A* partial) {
    if (t.count <= 32) {
        return value;
    }
    if (t.lane == 0) {
        partial[t.simdgroup] = value;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    typename Op::A total = partial[0];
    for (uint first = 0; first < t.count / 32; first += 8) {
        // On their way at once.
#pragma unroll
        for (uint i = 0; i < 8; ++i) {
            const uint g = first + i;
            if (g > 0 && g < t.count / 32) {
                total = Op::apply(total, partial[g]);
            }
        }
    }
    return total;
}

// What a simdgroup has of a row from its threads' values, for them.
template <typename Op>
inline typename Op::A combine_simdgroup(typename Op::A value, RowThread t) {
    if (t.count >= 32) {
        return shuffle(combine_lanes<Op>(value), 0);
    }
    return shuffle(combine_lanes<Op>(value, t.count), ushort(t.lane & ~(t.count - 1)));
}

// The row's result from those of its threads, for every thread.
template <typename Op>
inline typename Op::A combine_threads(typename Op::A value, RowThread t, threadgroup typename Op::A* partial) {
    return combine_simdgroups<Op>(combine_simdgroup<Op>(value, t), t, partial);
}

// The row's result, for every thread.
template <typename Op>
inline typename Op::A combine_row(thread const typename Op::A* slots, RowThread t, threadgroup typename Op::A* partial) {
    return combine_threads<Op>(combine_slots<Op>(slots), t, partial);
}

// How many of the eight elements from k on exist in a row of n.
inline uint slots_left(ulong k, ulong n) {
    return k < n ? uint(min(n - k, ulong(SLOTS))) : 0;
}

// Elements of a row, `stride` apart, eight at a time.
template <typename T>
struct RowReader {
    typedef T Element;

    device const T* row;
    ulong stride;
    ulong n;
    bool wide;

    RowReader(device const T* start, ulong stride, ulong n) : row(start), stride(stride), n(n), wide(stride == 1 && is_wide(start)) {}

    // Whether there is an element k.
    bool has(ulong k) const { return k < n; }

    // Elements k … k + 7; `other` beyond the end.
    void load(ulong k, float other, thread float (&slots)[SLOTS]) const {
        const uint left = slots_left(k, n);
        if (wide && left == SLOTS) {
            load_wide(row + k, slots);
            return;
        }
        for (uint i = 0; i < SLOTS; ++i) {
            slots[i] = i < left ? widen(row[(k + i) * stride]) : other;
        }
    }

    // The same of a row of whole eights, less than 2^32 elements, from a multiple of eight on.
    void load_whole(uint k, float other, thread float (&slots)[SLOTS]) const {
        if (wide && k < uint(n)) {
            load_wide(row + k, slots);
        } else {
            load(k, other, slots);
        }
    }
};

// The same for writing.
template <typename T>
struct RowWriter {
    device T* row;
    ulong stride;
    ulong n;
    bool wide;

    RowWriter(device T* start, ulong stride, ulong n) : row(start), stride(stride), n(n), wide(stride == 1 && is_wide(start)) {}

    bool has(ulong k) const { return k < n; }

    void store(ulong k, thread const float (&slots)[SLOTS]) const {
        const uint left = slots_left(k, n);
        if (wide && left == SLOTS) {
            store_wide(row + k, slots);
            return;
        }
        for (uint i = 0; i < SLOTS; ++i) {
            if (i < left) {
                row[(k + i) * stride] = narrow<T>(slots[i]);
            }
        }
    }
};

// Visits of a thread to its row, of up to 32768 elements, that it can keep in registers.
constant constexpr uint KEPT = 4;

// Where a piece is loaded from: element by element from anywhere; from a word of 16 bytes; from such a word, with what caches are to do.
constant constexpr uint ANYWHERE = 0;
constant constexpr uint WORDS = 1;
constant constexpr uint PAST_CACHE = 2;
constant constexpr uint BEFORE_RESULTS = 3;

// A word past the first cache; and one that the second cache prefers to results, so that those leave it sooner.
#ifdef CACHE_HINTS
inline uint4 load_past_cache(device const uint4* from) {
    return elv::load_uncached(from);
}

inline uint4 load_before_results(device const uint4* from) {
    return elv::load_evicted_last(from);
}
#else
inline uint4 load_past_cache(device const uint4* from) {
    return *from;
}

inline uint4 load_before_results(device const uint4* from) {
    return *from;
}
#endif

// What a thread has of a row of T that its threads keep in registers, and so read once, and of others of its length, which may be of another type. Such
// rows have whole groups of eight elements and are taken in up to KEPT visits; for others the host gives zero. More than one visit are only made to rows
// that exist. COUNT is that of row_thread.
//
// In each visit a thread has SLOTS elements, in one or two pieces of 16 bytes of T. The lanes of a whole simdgroup take neighbouring pieces: where there
// are two, lane l has the slots 0 … 3 or 4 … 7 of the canonical lanes l / 2 and l / 2 + 16.
template <typename T, uint VISITS, uint COUNT>
struct RowShare {
    static constexpr constant uint KEPT = VISITS > 0 ? VISITS : 1;
    // Rows of so few bytes come sooner past the first cache, longer ones later (measured on an H200).
    static constexpr constant bool IS_SHORT = VISITS * SLOTS * (COUNT > 0 ? COUNT : 32) * sizeof(T) <= 8192;
    static constexpr constant uint PIECES = sizeof(T) / 2;
    static constexpr constant uint LENGTH = SLOTS / PIECES;

    template <typename U>
    struct Kept {
        Piece<U, LENGTH> pieces[KEPT][PIECES];

        void widen_visit(uint v, thread float (&slots)[SLOTS]) const {
            for (uint i = 0; i < PIECES; ++i) {
                widen(pieces[v][i], slots + i * LENGTH);
            }
        }
    };

    RowThread t;
    uint n;
    bool wide;
    bool spread;
    uint first;

    // `wide` if all of the rows begin at words of 16 bytes.
    RowShare(RowThread t, uint n, bool wide) : t(t), n(n), wide(wide), spread(PIECES > 1 && t.count >= 32), first(SLOTS * t.index) {
        if (spread) {
            first = t.index / 32 * (32 * SLOTS) + t.index % 32 * LENGTH;
        }
    }

    // How far a piece of a visit is from the first one; whether a visit has it, as all but the last do; how many slots of a visit there are.
    uint at(uint v, uint piece) const { return v * (SLOTS * t.count) + piece * (spread ? 32 * LENGTH : LENGTH); }
    bool has(uint v, uint piece) const { return (VISITS > 1 && v + 1 < KEPT) || first + at(v, piece) < n; }
    bool has(uint v) const { return has(v, 0); }
    uint left(uint v) const { return has(v, PIECES - 1) ? SLOTS : LENGTH; }

    template <uint FROM, typename U>
    static void load_piece(device const U* from, thread Piece<U, LENGTH>& piece) {
        if (FROM == ANYWHERE) {
            float values[LENGTH];
            for (uint i = 0; i < LENGTH; ++i) {
                values[i] = widen(from[i]);
            }
            narrow(values, piece);
        } else if (FROM == WORDS) {
            piece = *reinterpret_cast<device const Piece<U, LENGTH>*>(from);
        } else {
            device const uint4* word = reinterpret_cast<device const uint4*>(from);
            *reinterpret_cast<thread uint4*>(&piece) = FROM == PAST_CACHE ? load_past_cache(word) : load_before_results(word);
        }
    }

    template <uint FROM, typename U>
    void load_visit(device const U* row, uint v, float other, thread Kept<U>& kept) const {
        for (uint i = 0; i < PIECES && has(v); ++i) {
            if (has(v, i)) {
                load_piece<FROM>(row + first + at(v, i), kept.pieces[v][i]);
            } else {
                const float others[8] = {other, other, other, other, other, other, other, other};
                narrow(others, kept.pieces[v][i]);
            }
        }
    }

    template <uint FROM, typename U>
    void load_visits(device const U* row, float other, thread Kept<U>& kept) const {
        for (uint v = 0; v < KEPT; ++v) {
            load_visit<FROM>(row, v, other, kept);
        }
    }

    // All visits' elements, in flight at once: apart from what may be anywhere, whose loads would make the wide ones wait for them. Beyond the row's
    // end, `other`.
    template <typename U>
    void load(device const U* row, float other, thread Kept<U>& kept) const {
        if (wide) {
            load_visits<WORDS>(row, other, kept);
        } else {
            load_visits<ANYWHERE>(row, other, kept);
        }
    }

    // The same for a row that is read once, a long one as `LONG` says.
    template <uint LONG>
    void load_once(device const T* row, float other, thread Kept<T>& kept) const {
        if (wide) {
            load_visits<IS_SHORT ? PAST_CACHE : LONG>(row, other, kept);
        } else {
            load_visits<ANYWHERE>(row, other, kept);
        }
    }

    // A visit of such a row alone.
    template <uint LONG>
    void load_once(device const T* row, uint v, float other, thread Kept<T>& kept) const {
        if (wide) {
            load_visit<IS_SHORT ? PAST_CACHE : LONG>(row, v, other, kept);
        } else {
            load_visit<ANYWHERE>(row, v, other, kept);
        }
    }

    // A visit's elements, as far as there are any.
    template <typename U>
    void load_visit(device const U* row, uint v, thread float (&slots)[SLOTS]) const {
        for (uint i = 0; i < PIECES; ++i) {
            if (has(v, i)) {
                Piece<U, LENGTH> piece;
                if (wide) {
                    load_piece<WORDS>(row + first + at(v, i), piece);
                } else {
                    load_piece<ANYWHERE>(row + first + at(v, i), piece);
                }
                widen(piece, slots + i * LENGTH);
            }
        }
    }

    // Stores a visit, and keeps it as it was stored.
    template <typename U>
    void store(device U* row, uint v, thread const float (&slots)[SLOTS], thread Kept<U>& kept) const {
        for (uint i = 0; i < PIECES; ++i) {
            narrow(slots + i * LENGTH, kept.pieces[v][i]);
            if (has(v, i) && wide) {
                *reinterpret_cast<device Piece<U, LENGTH>*>(row + first + at(v, i)) = kept.pieces[v][i];
            } else if (has(v, i)) {
                for (uint j = 0; j < LENGTH; ++j) {
                    row[first + at(v, i) + j] = narrow<U>(slots[i * LENGTH + j]);
                }
            }
        }
    }

    template <typename U>
    void store(device U* row, uint v, thread const float (&slots)[SLOTS]) const {
        Kept<U> kept;
        store(row, v, slots, kept);
    }

    // What a simdgroup has of the row, for its threads.
    template <typename Op>
    float combine_in_simdgroup(thread const float* slots) const {
        if (t.count < 32) {
            return combine_simdgroup<Op>(combine_slots<Op>(slots), t);
        }
        float value;
        if (spread) {
            const float low = Op::apply(Op::apply(slots[0], slots[1]), Op::apply(slots[2], slots[3]));
            const float high = Op::apply(Op::apply(slots[4], slots[5]), Op::apply(slots[6], slots[7]));
            value = Op::apply(Op::apply(low, shuffle_xor(low, 1)), Op::apply(high, shuffle_xor(high, 1)));
        } else {
            value = combine_slots<Op>(slots);
        }
        for (ushort mask = 16; mask > 1; mask >>= 1) {
            value = Op::apply(value, shuffle_xor(value, mask));
        }
        value = spread ? value : Op::apply(value, shuffle_xor(value, 1));
        return shuffle(value, 0);
    }

    // The row's result, for every thread, as combine_row.
    template <typename Op>
    float combine(thread const float* slots, threadgroup float* partial) const {
        return combine_simdgroups<Op>(combine_in_simdgroup<Op>(slots), t, partial);
    }
};
