// A row in threadgroup memory, with elements that change no accumulator up to a multiple of SLOTS. The words are placed so that lanes take neighbours:
// of each SPAN of elements first the lanes' low words, then their high ones.
struct SharedRow {
    static constexpr constant bool wide = true;
    static constexpr constant uint SPAN = 32 * SLOTS;
    threadgroup float4* words;

    static uint place(uint k) { return k / SPAN * (SPAN / 4) + k % SPAN / SLOTS; }

    void load(uint, uint k, thread float* slots) const {
        const float4 low = words[place(k)], high = words[place(k) + 32];
        for (uint i = 0; i < 4; ++i) {
            slots[i] = low[i];
            slots[4 + i] = high[i];
        }
    }

    void load(uint line, uint k, uint, float, thread float* slots) const { load(line, k, slots); }

    void store(uint k, thread const float* slots) const {
        words[place(k)] = float4(slots[0], slots[1], slots[2], slots[3]);
        words[place(k) + 32] = float4(slots[4], slots[5], slots[6], slots[7]);
    }
};

// A thread's visits to a row: all in flight at once if it has whole words, and nothing waits for them until `elements`; others are loaded then.
template <typename T>
struct Visits {
    RowReader<T> from;
    uint first;
    uint stride;
    bool are_words;
    Words<T> words[KEPT];

    Visits(RowReader<T> from, uint first, uint stride) : from(from), first(first), stride(stride), are_words(from.wide && from.n % SLOTS == 0) {
#pragma unroll
        for (uint v = 0; v < KEPT; ++v) {
            if (are_words && from.has(first + v * stride)) {
                words[v] = load_words(from.row + (first + v * stride));
            }
        }
    }

    // The elements; `other` beyond the row's end.
    void elements(float other, thread float (&kept)[KEPT][SLOTS]) const {
        if (!are_words) {
            for (uint v = 0; v < KEPT; ++v) {
                from.load(first + v * stride, other, kept[v]);
            }
            return;
        }
#pragma unroll
        for (uint v = 0; v < KEPT; ++v) {
            if (from.has(first + v * stride)) {
                widen(words[v], kept[v]);
            } else {
                for (uint i = 0; i < SLOTS; ++i) {
                    kept[v][i] = other;
                }
            }
        }
    }
};

// The elements of a thread's visits; `other` beyond the row's end.
template <typename T>
inline void visit(thread const RowReader<T>& from, uint first, uint stride, float other, thread float (&kept)[KEPT][SLOTS]) {
    Visits<T>(from, first, stride).elements(other, kept);
}

// A row as it is, for every thread of a threadgroup of so many.
template <typename Row>
inline SharedRow share_row(Row from, uint n, uint thread_index, uint threads, threadgroup float4* words) {
    const SharedRow row = {words};
    const uint stride = SLOTS * threads;
    for (uint first = SLOTS * thread_index; first < n; first += KEPT * stride) {
        float kept[KEPT][SLOTS];
        visit(from, first, stride, -0.0f, kept);
        for (uint v = 0; v < KEPT && first + v * stride < n; ++v) {
            row.store(first + v * stride, kept[v]);
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return row;
}
