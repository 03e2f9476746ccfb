// The frame of kernels that compute every output element by itself, in row-major order: a thread takes SLOTS neighbouring elements.
//
// Where they lie in one row of the visited space, an operand that is contiguous and aligned is read in words of 16 bytes and one that is
// broadcast is read once; only the thread's first element is found by division. Each operand is read once, the output is written once.

constant constexpr uint THREADS = 256;

// How an element is stored: a number as its bits, a truth value as a byte, zero or not.
template <typename T>
struct Stored {
    typedef T type;
};

template <>
struct Stored<float> {
    typedef uint type;
};

template <>
struct Stored<half> {
    typedef ushort type;
};

template <>
struct Stored<bfloat> {
    typedef ushort type;
};

template <>
struct Stored<bool> {
    typedef uchar type;
};

// What it is computed with.
template <typename T>
struct Computed {
    typedef T type;
};

template <>
struct Computed<half> {
    typedef float type;
};

template <>
struct Computed<bfloat> {
    typedef float type;
};

template <typename T>
inline typename Computed<T>::type unpack(typename Stored<T>::type x) {
    return x;
}

template <>
inline float unpack<float>(uint x) {
    return as_type<float>(x);
}

template <>
inline float unpack<half>(ushort x) {
    return widen(as_type<half>(x));
}

template <>
inline float unpack<bfloat>(ushort x) {
    return widen(as_type<bfloat>(x));
}

template <>
inline bool unpack<bool>(uchar x) {
    return x != 0;
}

template <typename T>
inline typename Stored<T>::type pack(typename Computed<T>::type x) {
    return x;
}

template <>
inline uint pack<float>(float x) {
    return as_type<uint>(x);
}

template <>
inline ushort pack<half>(float x) {
    return as_type<ushort>(narrow<half>(x));
}

template <>
inline ushort pack<bfloat>(float x) {
    return as_type<ushort>(narrow<bfloat>(x));
}

template <typename T>
inline device const typename Stored<T>::type* stored(device const T* p) {
    return reinterpret_cast<device const typename Stored<T>::type*>(p);
}

template <typename T>
inline device typename Stored<T>::type* stored(device T* p) {
    return reinterpret_cast<device typename Stored<T>::type*>(p);
}

// Neighbouring elements, moved as 16-byte words.
template <typename T>
struct alignas(sizeof(T) == 1 ? 8 : 16) Block {
    T at[SLOTS];
};

// Neighbouring elements of a tensor of T.
template <typename T>
using Elements = Block<typename Stored<T>::type>;

template <typename T>
inline bool is_aligned(device const T* p) {
    return (reinterpret_cast<ulong>(p) & (alignof(Block<T>) - 1)) == 0;
}

// The elements 0, step, 2 step, …
template <typename T>
inline Block<T> load_block(device const T* from, long step) {
    if (step == 1 && is_aligned(from)) {
        return *reinterpret_cast<device const Block<T>*>(from);
    }
    Block<T> block;
    block.at[0] = from[0];
    for (uint i = 1; i < SLOTS; ++i) {
        block.at[i] = step == 0 ? block.at[0] : from[long(i) * step];
    }
    return block;
}

// The first `count` of a block.
template <typename T>
inline void store_block(device T* to, Block<T> block, uint count) {
    if (count == SLOTS && is_aligned(to)) {
        *reinterpret_cast<device Block<T>*>(to) = block;
        return;
    }
    for (uint i = 0; i < SLOTS; ++i) {
        if (i < count) {
            to[i] = block.at[i];
        }
    }
}

struct Division {
    ulong quotient;
    ulong remainder;
};

// In 32 bits where both numbers have no more.
inline Division division(ulong n, ulong d) {
    if (((n | d) >> 32) == 0) {
        const uint quotient = uint(n) / uint(d);
        return {quotient, uint(n) - quotient * uint(d)};
    }
    const ulong quotient = n / d;
    return {quotient, n - quotient * d};
}

// A thread's first element.
inline ulong first_element(uint group, uint index) {
    return (ulong(group) * THREADS + index) * SLOTS;
}

// How many of `total` elements a thread has from `first` on.
inline uint elements_from(ulong first, ulong total) {
    return uint(min(ulong(SLOTS), total - first));
}

// A thread's elements in a space: `count` from number `first` on, which is at `column` of row number `row`.
struct Run {
    ulong first;
    uint count;
    ulong row;
    ulong column;
    ulong inner;

    Run(constant Space& space, ulong first) : first(first), count(elements_from(first, space.count)), row(0), column(first) {
        inner = space.extents[space.rank - 1];
        if (space.rank > 1) {
            const Division place = division(first, inner);
            row = place.quotient;
            column = place.remainder;
        }
    }

    // Whether SLOTS elements lie in the row.
    bool is_whole() const { return column + SLOTS <= inner; }
};

// Where the first element of a row lies, for more axes than two. Called: its divisions, eight times in a kernel, took the compilers seconds.
__attribute__((noinline)) static long divided_row_start(constant Space& space, constant Operand& operand, ulong row) {
    long at = long(operand.origin);
    for (uint axis = uint(space.rank) - 1; axis > 1; --axis) {
        const Division place = division(row, space.extents[axis - 1]);
        at += long(place.remainder) * operand.strides[axis - 1];
        row = place.quotient;
    }
    return at + long(row) * operand.strides[0];
}

// Where the first element of a row lies.
inline long row_start(constant Space& space, constant Operand& operand, ulong row) {
    if (space.rank > 2) {
        return divided_row_start(space, operand, row);
    }
    return space.rank > 1 ? long(operand.origin) + long(row) * operand.strides[0] : long(operand.origin);
}

inline long inner_step(constant Space& space, constant Operand& operand) {
    return operand.strides[space.rank - 1];
}

// Where each element of a run lies; beyond its end, the last one.
inline void locate(constant Space& space, constant Operand& operand, Run run, thread long (&at)[SLOTS]) {
    const long step = inner_step(space, operand);
    long start = row_start(space, operand, run.row);
    for (uint i = 0; i < SLOTS; ++i) {
        at[i] = start + long(run.column) * step;
        if (i + 1 < run.count && ++run.column == run.inner) {
            run.column = 0;
            start = row_start(space, operand, ++run.row);
        }
    }
}

// An operand's elements; beyond the end of the run, the last one.
template <typename T>
inline Elements<T> load(device const T* x, constant Space& space, constant Operand& operand, Run run) {
    if (run.is_whole()) {
        const long step = inner_step(space, operand);
        return load_block(stored(x) + (row_start(space, operand, run.row) + long(run.column) * step), step);
    }
    long at[SLOTS];
    locate(space, operand, run, at);
    Elements<T> block;
    for (uint i = 0; i < SLOTS; ++i) {
        block.at[i] = stored(x)[at[i]];
    }
    return block;
}

// A run of the row-major output.
template <typename T>
inline void store(device T* y, Run run, Elements<T> block) {
    store_block(stored(y) + run.first, block, run.count);
}

// A word of so many bytes of a tensor of T: what a thread takes of tensors without gaps.
template <typename T, uint BYTES>
struct alignas(BYTES) Word {
    static constexpr constant uint COUNT = BYTES / sizeof(typename Stored<T>::type);

    typename Stored<T>::type at[COUNT];
};

template <uint BYTES, typename T>
inline bool is_word(device const T* p) {
    return (reinterpret_cast<ulong>(p) & (BYTES - 1)) == 0;
}

// Elements from `p` on; beyond the `count` that there are, the last one.
template <uint BYTES, typename T>
inline Word<T, BYTES> load_word(device const T* p, ulong count) {
    if (count >= Word<T, BYTES>::COUNT && is_word<BYTES>(p)) {
        return *reinterpret_cast<device const Word<T, BYTES>*>(p);
    }
    Word<T, BYTES> word;
    for (uint i = 0; i < Word<T, BYTES>::COUNT; ++i) {
        word.at[i] = stored(p)[min(ulong(i), count - 1)];
    }
    return word;
}

template <typename T, uint BYTES>
inline void store_word(device T* p, ulong count, Word<T, BYTES> word) {
    if (count >= Word<T, BYTES>::COUNT && is_word<BYTES>(p)) {
        *reinterpret_cast<device Word<T, BYTES>*>(p) = word;
        return;
    }
    for (uint i = 0; i < Word<T, BYTES>::COUNT && i < count; ++i) {
        stored(p)[i] = word.at[i];
    }
}
