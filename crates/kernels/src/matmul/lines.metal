// Parallel lines of an operand, with k along each: neighbouring rows of a, or neighbouring columns of b.
template <typename T>
struct Lines {
    typedef T Element;

    device const T* origin;
    // Strides from line to line and along a line.
    long line;
    long step;
    // The last line that exists; those after it stand for it.
    uint last;
    bool wide;

    Lines(device const T* origin, long line, long step, uint count)
        : origin(origin), line(line), step(step), last(count - 1), wide(step == 1 && is_wide(origin) && (line & (16 / sizeof(T) - 1)) == 0) {}

    device const T* at(uint index, uint k) const { return origin + long(min(index, last)) * line + long(k) * step; }

    // Elements k … k + 7 of a wide line that has them all.
    void load(uint index, uint k, thread float* slots) const { load_wide(origin + long(min(index, last)) * line + k, slots); }

    // The same of any line of `n` elements; `other` beyond its end.
    void load(uint index, uint k, uint n, float other, thread float* slots) const {
        if (wide && k + SLOTS <= n) {
            return load(index, k, slots);
        }
        for (uint i = 0; i < SLOTS; ++i) {
            slots[i] = k + i < n ? widen(*at(index, k + i)) : other;
        }
    }
};

// COUNT contiguous lines that lie anywhere.
template <typename T, uint COUNT>
struct Scattered {
    typedef T Element;

    device const T* lines[COUNT];
    bool wide;

    device const T* at(uint index, uint k) const { return lines[index] + k; }
};
