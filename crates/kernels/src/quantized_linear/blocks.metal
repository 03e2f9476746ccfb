// Linear layers of many rows: a threadgroup has a block of rows and columns. Of eight neighbouring chunks each simdgroup has one, for all of the block, so its
// sums are the dot products' own: chunks c = l (mod 8), in ascending order. Products of bytes are exact on matrix units: x has an unsigned low byte and a
// signed high one, and the weights are signed bytes.

// Sums of products of bytes start at AS_FLOAT. Read as a float, such a sum is BASE and the products' sum, of magnitudes up to 2^22, in units of the float's
// last place: one; or, of weights that are kept sixteenfold, a sixteenth.
template <uint TIMES>
struct Sums {
    static constexpr constant int AS_FLOAT = TIMES == 16 ? 0x49400000 : 0x4b400000;
    static constexpr constant float BASE = 12582912.0f / TIMES;

    // `low + 256 high`, rounded once: the fused product is exact.
    static float rounded(int low, int high) { return as_type<float>(low) + fma(as_type<float>(high), 256.0f, -257.0f * BASE); }
};

// A simdgroup's 16 by 8 sums of products of bytes of x and of weights. A lane has of the sums rows lane / 4 and 8 more, and columns 2 (lane % 4) and one more;
// of a chunk of x the words lane % 4 and 4 + lane % 4 of both rows; and the same words of row lane / 4 of the weights. Half 0 or 1 of the chunk, or 2 for both.
template <uint HALF, bool SIGNED>
struct ByteProducts {
#ifdef INTEGER_DOTS
    static void find(thread int (&sums)[4], thread const uint (&rows)[4], thread const uint (&columns)[2], int start, uint) {
        if (HALF == 2 && SIGNED) {
            elv::signed_products(sums, rows, columns, start);
        } else if (HALF == 2) {
            elv::unsigned_products(sums, rows, columns, start);
        } else if (SIGNED) {
            elv::signed_products(sums, rows[2 * (HALF % 2)], rows[2 * (HALF % 2) + 1], columns[HALF % 2], start);
        } else {
            elv::unsigned_products(sums, rows[2 * (HALF % 2)], rows[2 * (HALF % 2) + 1], columns[HALF % 2], start);
        }
    }
#else
    static int dot(uint row, uint column, int sum) {
        for (uint i = 0; i < 32; i += 8) {
            const int of_row = SIGNED ? int(as_type<char>(uchar(row >> i))) : int(uchar(row >> i));
            sum += of_row * int(as_type<char>(uchar(column >> i)));
        }
        return sum;
    }

    static void find(thread int (&sums)[4], thread const uint (&rows)[4], thread const uint (&columns)[2], int start, uint lane) {
        for (uint e = 0; e < 4; ++e) {
            sums[e] = start;
        }
        for (uint half_of = HALF == 2 ? 0 : HALF; half_of < (HALF == 2 ? 2 : HALF + 1); ++half_of) {
            for (uint word = 0; word < 4; ++word) {
                const uint row = simd_shuffle(rows[2 * half_of], ushort(lane / 4 * 4 + word));
                const uint below = simd_shuffle(rows[2 * half_of + 1], ushort(lane / 4 * 4 + word));
                for (uint e = 0; e < 2; ++e) {
                    const uint column = simd_shuffle(columns[half_of], ushort(8 * (lane % 4) + 4 * e + word));
                    sums[e] = dot(row, column, sums[e]);
                    sums[2 + e] = dot(below, column, sums[2 + e]);
                }
            }
        }
    }
#endif
};

// Of a chunk of rows of x, eight times EACH, a lane's words of the bytes, and what its rows share: row lane / 4, and if there are two the one eight further on.
template <uint EACH>
struct RowBytes {
    uint low[4];
    uint high[4];
    float scales[2];
    int2 totals[2];

    void split(uint of, uint r, uint low_word, uint high_word) {
        low[2 * of + r] = low_word;
        high[2 * of + r] = high_word;
    }

    void store(device uint4* words, ulong place, uint lane) const {
        words[64 * place + lane] = uint4(low[0], low[1], low[2], low[3]);
        words[64 * place + 32 + lane] = uint4(high[0], high[1], high[2], high[3]);
    }

    void load(device const uint4* words, ulong place, uint lane) {
        const uint4 lows = words[64 * place + lane], highs = words[64 * place + 32 + lane];
        for (uint i = 0; i < 4; ++i) {
            low[i] = lows[i];
            high[i] = highs[i];
        }
    }

    // The dot products of its rows and two columns with half a chunk or all of it.
    template <uint HALF, typename Sum>
    void dots(thread const uint (&columns)[2], int2, uint lane, thread float (&found)[4]) const {
        int lows[4], highs[4];
        ByteProducts<HALF, false>::find(lows, low, columns, Sum::AS_FLOAT, lane);
        ByteProducts<HALF, true>::find(highs, high, columns, Sum::AS_FLOAT, lane);
        for (uint e = 0; e < 4; ++e) {
            found[e] = Sum::rounded(lows[e], highs[e]);
        }
    }
};

// Eight rows: their low bytes, less 128, have the place of eight rows, and their high ones that of the others.
template <>
struct RowBytes<1> {
    uint both[4];
    float scales[1];
    int2 totals[1];

    void split(uint of, uint, uint low_word, uint high_word) {
        both[2 * of] = low_word ^ 0x80808080u;
        both[2 * of + 1] = high_word;
    }

    void store(device uint4* words, ulong place, uint lane) const { words[32 * place + lane] = uint4(both[0], both[1], both[2], both[3]); }

    void load(device const uint4* words, ulong place, uint lane) {
        const uint4 found = words[32 * place + lane];
        for (uint i = 0; i < 4; ++i) {
            both[i] = found[i];
        }
    }

    // `less` is what the low bytes' products lack: 128 times the columns' sums.
    template <uint HALF, typename Sum>
    void dots(thread const uint (&columns)[2], int2 less, uint lane, thread float (&found)[2]) const {
        int sums[4];
        ByteProducts<HALF, true>::find(sums, both, columns, Sum::AS_FLOAT, lane);
        found[0] = Sum::rounded(sums[0] + less.x, sums[2]);
        found[1] = Sum::rounded(sums[1] + less.y, sums[3]);
    }
};

// Rows of x in device memory, eight times EACH at a time, first those of a tile with the same chunk: the lanes' words; after all of them the rows' scales, then
// the sums of each half.
template <uint EACH>
struct StoredBytes {
    device const uint4* words;
    device const float* scales;
    device const int2* totals;

    StoredBytes(device const void* memory, ulong rows, ulong chunks) {
        words = reinterpret_cast<device const uint4*>(memory);
        scales = reinterpret_cast<device const float*>(words + 4 * rows * chunks);
        totals = reinterpret_cast<device const int2*>(scales + rows * chunks);
    }

    static ulong row(ulong place, uint r, uint lane) { return 8 * (EACH * place + r) + lane / 4; }

    template <bool WITH_TOTALS>
    void load(ulong place, uint lane, thread RowBytes<EACH>& bytes) const {
        bytes.load(words, place, lane);
        for (uint r = 0; r < EACH; ++r) {
            bytes.scales[r] = scales[row(place, r, lane)];
            if (WITH_TOTALS) {
                bytes.totals[r] = totals[row(place, r, lane)];
            }
        }
    }
};

// Rows of x that are stored, of tiles of ROWS: those after the last are zero.
template <uint ROWS>
inline ulong stored_rows(constant Params& p) {
    return (p.m + ROWS - 1) / ROWS * ROWS;
}

// Writes rows of x; a simdgroup has a chunk of 16, or of eight.
template <typename T, uint ROWS>
[[kernel, max_total_threads_per_threadgroup(256)]] void quantized_row_bytes(
    device const T* x [[buffer(0)]],
    device T* stored [[buffer(1)]],
    constant Params& p [[buffer(2)]],
    uint group [[threadgroup_position_in_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]])
{
    constexpr uint EACH = ROWS == 8 ? 1 : 2, BLOCKS = ROWS / (8 * EACH);
    await_launches();
    const ulong rows = stored_rows<ROWS>(p), place = LINEAR_SIMDGROUPS * ulong(group) + simdgroup, k = 32 * p.chunks;
    if (place >= rows / (8 * EACH) * p.chunks) {
        return;
    }
    const ulong block = place / BLOCKS / p.chunks * BLOCKS + place % BLOCKS, chunk = place / BLOCKS % p.chunks;
    RowBytes<EACH> bytes;
    for (uint r = 0; r < EACH; ++r) {
        const ulong row = 8 * (block * EACH + r) + lane / 4, first = row * k + chunk * 32 + 4 * (lane % 4);
        float values[8];
        for (uint of = 0; of < 2; ++of) {
            if (row < p.m && is_wide(x)) {
                widen(*reinterpret_cast<device const Piece<T, 4>*>(x + first + 16 * of), values + 4 * of);
            } else {
                for (uint i = 0; i < 4; ++i) {
                    values[4 * of + i] = row < p.m ? widen(x[first + 16 * of + i]) : 0.0f;
                }
            }
        }
        uint largest = 0;
        for (uint i = 0; i < 8; ++i) {
            largest = max(largest, magnitude(values[i]));
        }
        largest = max(largest, simd_shuffle_xor(largest, 1));
        largest = max(largest, simd_shuffle_xor(largest, 2));
        const Multiples multiples(largest);
        bytes.scales[r] = multiples.scale;
        for (uint of = 0; of < 2; ++of) {
            uint low = 0, high = 0;
            int total = 0;
            for (uint i = 0; i < 4; ++i) {
                const int q = multiples.of(values[4 * of + i]);
                low |= (uint(q) & 0xffu) << (8 * i);
                high |= (uint(q) >> 8 & 0xffu) << (8 * i);
                total += q;
            }
            bytes.split(of, r, low, high);
            total += simd_shuffle_xor(total, 1);
            bytes.totals[r][of] = total + simd_shuffle_xor(total, 2);
        }
    }
    device uint4* words = reinterpret_cast<device uint4*>(stored);
    device float* scales = reinterpret_cast<device float*>(words + 4 * rows * p.chunks);
    device int2* totals = reinterpret_cast<device int2*>(scales + rows * p.chunks);
    bytes.store(words, place, lane);
    for (uint r = 0; r < EACH && lane % 4 == 0; ++r) {
        scales[StoredBytes<EACH>::row(place, r, lane)] = bytes.scales[r];
        totals[StoredBytes<EACH>::row(place, r, lane)] = bytes.totals[r];
    }
}

// Of four integers that two words have, the low bytes or, from bit 8 on, the high ones.
inline uint bytes_of(uint first, uint second, uint from) {
    const uint even = 0x00ff00ffu, low = first >> from & even, high = second >> from & even;
    return (low | low >> 8) & 0xffffu | (high | high >> 8) << 16;
}

// One of the rows, of which every thread has eight elements at a time; zeros for one that does not exist.
template <uint ROWS>
struct StoredRow {
    static constexpr constant uint EACH = ROWS == 8 ? 1 : 2, BLOCKS = ROWS / (8 * EACH);
    device uint* words;
    device float* scales;
    device int* totals;
    ulong chunks;
    uint row;
    bool exists;

    StoredRow(device float* stored, constant Params& p, uint row) : words(reinterpret_cast<device uint*>(stored)), chunks(p.chunks), row(row), exists(row < p.m) {
        const ulong count = stored_rows<ROWS>(p) * chunks;
        scales = stored + 16 * count;
        totals = reinterpret_cast<device int*>(scales + count);
    }

    void store(uint k, bool is_inside, thread const float (&values)[SLOTS]) const {
        float own[SLOTS];
        for (uint i = 0; i < SLOTS; ++i) {
            own[i] = exists ? values[i] : 0.0f;
        }
        const Integers integers = integers_of(own);
        if (!is_inside) {
            return;
        }
        const uint block = row / (8 * EACH), r = row / 8 % EACH, of_eight = row % 8, quarter = k / 8 % 4, half_of = quarter / 2;
        const ulong place = (block / BLOCKS * chunks + k / 32) * BLOCKS + block % BLOCKS;
        device uint* to = words + 128 * EACH * place + 4 * (4 * of_eight + quarter % 2 * 2) + 2 * half_of;
        for (uint i = 0; i < 2; ++i) {
            const uint low = bytes_of(integers.words[2 * i], integers.words[2 * i + 1], 0), high = bytes_of(integers.words[2 * i], integers.words[2 * i + 1], 8);
            if (EACH == 1) {
                to[4 * i] = low ^ 0x80808080u;
                to[4 * i + 1] = high;
            } else {
                to[4 * i + r] = low;
                to[128 + 4 * i + r] = high;
            }
        }
        const ulong at = 8 * (EACH * place + r) + of_eight;
        if (quarter == 0) {
            scales[at] = integers.scale;
        }
        if (quarter % 2 == 0) {
            totals[2 * at + half_of] = integers.total;
        }
    }
};

// Writes rows that are normalised first; a threadgroup has a row.
template <typename N, uint ROWS>
[[kernel, max_total_threads_per_threadgroup(512)]] void normalised_row_bytes(
    device const float* x [[buffer(0)]],
    device const N* norm [[buffer(1)]],
    device float* stored [[buffer(2)]],
    constant Params& p [[buffer(3)]],
    threadgroup float* partial [[threadgroup(0)]],
    uint group [[threadgroup_position_in_grid]],
    uint threads [[threads_per_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]])
{
    const ulong row = min(ulong(group), p.m - 1);
    const uint n = 32 * uint(p.chunks);
    const RowReader<N> factors(norm, 1, p.present & WEIGHTED ? n : 0);
    store_normalised<0, 1>(RowReader<float>(x + row * n, 1, n), factors, p.epsilon, threads, simdgroup, lane, partial, StoredRow<ROWS>(stored, p, group));
}

// Eight chunks of COLUMNS rows of weights in threadgroup memory: as signed bytes, maybe sixteenfold, and their scales and offsets; for SUMS of all or of half of
// a chunk, 128 times these.
template <typename F, uint COLUMNS, bool SUMS>
struct SharedWeights {
    // Words of a row, and numbers of a chunk: with some between, so that neighbours are in other banks.
    static constexpr constant uint STRIDE = 72, NUMBERS = COLUMNS + 4;
    // Words in all.
    static constexpr constant uint WORDS = STRIDE * COLUMNS + 6 * 8 * NUMBERS;
    threadgroup uint* words;
    threadgroup float* numbers;

    SharedWeights(threadgroup float* memory) : words(reinterpret_cast<threadgroup uint*>(memory)), numbers(memory + COLUMNS * STRIDE) {}

    // Chunk c of a row. The words of either half alternate.
    void store(uint row, uint c, Packed<F> chunk) const {
        threadgroup uint4* to = reinterpret_cast<threadgroup uint4*>(words + STRIDE * row + 8 * c);
        to[0] = uint4(chunk.multiples(0), chunk.multiples(4), chunk.multiples(1), chunk.multiples(5));
        to[1] = uint4(chunk.multiples(2), chunk.multiples(6), chunk.multiples(3), chunk.multiples(7));
        if (SUMS) {
            // Each byte times 128.
            constexpr uint PAIR = 0x00800080u;
            int sums[2] = {0, 0};
            for (uint i = 0; i < 8; ++i) {
                const uint part = F::GROUP == 32 ? 0 : i / 4;
                sums[part] = dot_four(PAIR, PAIR, chunk.multiples(i), sums[part]);
            }
            for (uint part = 0; part < 32 / F::GROUP; ++part) {
                numbers[NUMBERS * (8 * (4 + part) + c) + row] = as_type<float>(sums[part]);
            }
        }
        const Scales scales = chunk.scales();
        for (uint part = 0; part < 32 / F::GROUP; ++part) {
            numbers[NUMBERS * (8 * part + c) + row] = scales.scale[part];
            if (F::OFFSETS) {
                numbers[NUMBERS * (8 * (32 / F::GROUP + part) + c) + row] = scales.offset[part];
            }
        }
    }

    // A lane's words of chunk c of the eighth `block` of the rows.
    void load(uint block, uint c, uint lane, thread uint (&columns)[2]) const {
        const uint2 both = *reinterpret_cast<threadgroup const uint2*>(words + STRIDE * (8 * block + lane / 4) + 8 * c + 2 * (lane % 4));
        columns[0] = both.x;
        columns[1] = both.y;
    }

    // Number `part` of a lane's columns.
    float2 number(uint part, uint block, uint c, uint lane) const {
        return *reinterpret_cast<threadgroup const float2*>(numbers + NUMBERS * (8 * part + c) + 8 * block + 2 * (lane % 4));
    }
};

// The tree of the simdgroups' sums of an element.
inline float total(threadgroup const float* sums, uint stride) {
    const float even = (sums[0] + sums[4 * stride]) + (sums[2 * stride] + sums[6 * stride]);
    return even + ((sums[stride] + sums[5 * stride]) + (sums[3 * stride] + sums[7 * stride]));
}

// A threadgroup's columns, which are rows of weights: COLUMNS of a layer; or, gated, half as many of two, eight of each in turn.
template <uint GATED, typename T, typename C, uint COLUMNS>
struct Columns {
    // Blocks of eight columns that are stored together.
    static constexpr constant uint TOGETHER = 1;

    Layer<T, C> layer;
    uint number;
    uint first;

    Columns(Layers<T, C> of, uint tile) : layer(of.first), number(0), first(COLUMNS * tile) {
        const uint before_second = (of.first.n + COLUMNS - 1) / COLUMNS, before_third = before_second + (of.second.n + COLUMNS - 1) / COLUMNS;
        if (tile >= before_third) {
            layer = of.third;
            number = 2;
            first -= COLUMNS * before_third;
        } else if (tile >= before_second) {
            layer = of.second;
            number = 1;
            first -= COLUMNS * before_second;
        }
    }

    device const uchar* row(uint index, constant Params& p) const { return layer.row(first + index, p); }

    // An element of a row and of a block, whose sums are `stride` apart.
    void store(threadgroup const float* sums, uint stride, device const float* residual, constant Params& p, uint row, uint block, uint column) const {
        const uint c = first + 8 * block + column;
        if (row < p.m && c < layer.n) {
            const float value = layer.biased(p.present >> number & 1, c, total(sums, stride));
            const ulong to = ulong(row) * layer.n + c;
            layer.y[to] = narrow<T>(p.present & RESIDUAL ? residual[to] + value : value);
        }
    }
};

template <typename T, typename C, uint COLUMNS>
struct Columns<1, T, C, COLUMNS> {
    static constexpr constant uint TOGETHER = 2;

    Layer<T, C> gate;
    Layer<T, C> factor;
    uint first;

    Columns(Layers<T, C> of, uint tile) : gate(of.first), factor(of.second), first(COLUMNS / 2 * tile) {}

    device const uchar* row(uint index, constant Params& p) const {
        const uint column = first + index / 16 * 8 + index % 8;
        return index / 8 % 2 == 0 ? gate.row(column, p) : factor.row(column, p);
    }

    // The factor's block follows the gate's.
    void store(threadgroup const float* sums, uint stride, device const float*, constant Params& p, uint row, uint block, uint column) const {
        const uint c = first + 8 * (block / 2) + column;
        if (row < p.m && c < gate.n) {
            const float value = gate.biased(p.present & 1, c, total(sums, stride));
            const float other = factor.biased(p.present & 2, c, total(sums + stride / 2, stride));
            gate.y[ulong(row) * gate.n + c] = narrow<T>(strict::gate(value, 1.0f) * other);
        }
    }
};

// A simdgroup's sums of rows, eight times EACH, and all columns, eight at a time.
template <typename F, uint EACH, uint COLUMNS>
struct RowSums {
    typedef SharedWeights<F, COLUMNS, EACH == 1> Weights;

    float sums[COLUMNS / 8][2 * EACH];

    template <uint HALF>
    void fold_half(thread const RowBytes<EACH>& x, Weights weights, uint block, uint c, uint lane, thread const uint (&columns)[2]) {
        float dots[2 * EACH];
        const int2 less = EACH == 1 ? as_type<int2>(weights.number(4 + HALF % 2, block, c, lane)) : int2(0);
        x.template dots<HALF, Sums<Packed<F>::TIMES>>(columns, less, lane, dots);
        const float2 scale = weights.number(HALF % 2, block, c, lane);
        for (uint e = 0; e < 2 * EACH; ++e) {
            sums[block][e] = fma(scale[e % 2] * x.scales[e / 2], dots[e], sums[block][e]);
        }
        if (F::OFFSETS) {
            const float2 offset = weights.number(32 / F::GROUP + HALF % 2, block, c, lane);
            for (uint e = 0; e < 2 * EACH; ++e) {
                const int2 totals = x.totals[e / 2];
                const int of = HALF == 2 ? totals.x + totals.y : totals[HALF % 2];
                sums[block][e] = fma(offset[e % 2] * x.scales[e / 2], float(of), sums[block][e]);
            }
        }
    }

    void fold(thread const RowBytes<EACH>& x, Weights weights, uint c, uint lane) {
#pragma unroll
        for (uint block = 0; block < COLUMNS / 8; ++block) {
            uint columns[2];
            weights.load(block, c, lane, columns);
            if (F::GROUP == 32) {
                fold_half<2>(x, weights, block, c, lane, columns);
            } else {
                fold_half<0>(x, weights, block, c, lane, columns);
                fold_half<1>(x, weights, block, c, lane, columns);
            }
        }
    }
};

// Sends for chunk c of a row of weights, if there is one.
template <typename F>
inline void load_chunk(device const uchar* row, uint c, uint chunks, thread Packed<F>& packed) {
    if (c < chunks) {
        const PackedPlace<F> place(row, c, chunks);
        if (is_wide(row)) {
            packed.template load<Aligned>(place, 0);
        } else {
            packed.template load<Anywhere>(place, 0);
        }
    }
}

// A threadgroup has a thread for each of eight neighbouring chunks of each of its rows of weights.
template <typename F, typename T, typename N, typename C, uint GATED, uint ROWS, uint COLUMNS>
[[kernel, max_total_threads_per_threadgroup(8 * COLUMNS)]] void quantized_linear_blocks(
    device const T* x [[buffer(0)]],
    device const uchar* w0 [[buffer(1)]],
    device const uchar* w1 [[buffer(2)]],
    device const uchar* w2 [[buffer(3)]],
    device const C* b0 [[buffer(4)]],
    device const C* b1 [[buffer(5)]],
    device const C* b2 [[buffer(6)]],
    device const N* norm [[buffer(7)]],
    device const float* residual [[buffer(8)]],
    device T* y0 [[buffer(9)]],
    device T* y1 [[buffer(10)]],
    device T* y2 [[buffer(11)]],
    constant Params& p [[buffer(12)]],
    threadgroup float* memory [[threadgroup(0)]],
    uint group [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    typedef Columns<GATED, T, C, COLUMNS> Part;
    // Rows that a lane has of those that it multiplies at a time, so many times; of a wide tile two simdgroups have half of the rows each.
    constexpr uint EACH = ROWS == 8 ? 1 : 2, ALL_BLOCKS = ROWS / (8 * EACH), BLOCKS = ALL_BLOCKS / (COLUMNS / 32);
    typedef SharedWeights<F, COLUMNS, EACH == 1> Weights;
    const Layers<T, C> layers = {{w0, b0, y0, uint(p.n[0])}, {w1, b1, y1, uint(p.n[1])}, {w2, b2, y2, uint(p.n[2])}};
    const uint down = (uint(p.m) + ROWS - 1) / ROWS;
    // Neighbours share weights.
    const Part columns(layers, group / down);
    const uint row = ROWS * (group % down), chunks = uint(p.chunks), thread_index = 32 * simdgroup + lane;
    const uint sum = simdgroup % 8, first_block = simdgroup / 8 * BLOCKS;
    RowSums<F, EACH, COLUMNS> found[BLOCKS];
    for (uint i = 0; i < BLOCKS; ++i) {
        for (uint block = 0; block < COLUMNS / 8; ++block) {
            for (uint e = 0; e < 2 * EACH; ++e) {
                found[i].sums[block][e] = 0.0f;
            }
        }
    }
    // Of few rows more weights are in flight, as their products take less time.
    constexpr uint AHEAD = ALL_BLOCKS == 1 && F::LOW + F::HIGH <= 6 ? 4 : ALL_BLOCKS * COLUMNS < 256 ? 2 : 1;
    device const uchar* const weights_row = columns.row(thread_index / 8, p);
    Packed<F> coming[AHEAD];
#pragma unroll
    for (uint i = 0; i < AHEAD; ++i) {
        load_chunk(weights_row, 8 * i + thread_index % 8, chunks, coming[i]);
    }
    await_launches();
    const StoredBytes<EACH> stored(x, stored_rows<ROWS>(p), chunks);
    // Rows are in flight while those before them are multiplied.
    RowBytes<EACH> rows[2];
    const ulong before = group % down * ulong(chunks);
    if (sum < chunks) {
        stored.template load<F::OFFSETS>(ALL_BLOCKS * (before + sum) + first_block, lane, rows[0]);
    }
#pragma unroll 1
    for (uint start = 0; start < chunks; start += 8 * AHEAD) {
#pragma unroll
        for (uint turn = 0; turn < AHEAD; ++turn) {
            const uint first = start + 8 * turn, c = first + sum;
            if (first < chunks) {
                // Weights have two places, so that all meet once.
                const Weights weights(memory + first / 8 % 2 * Weights::WORDS);
                weights.store(thread_index / 8, thread_index % 8, coming[turn]);
                load_chunk(weights_row, first + 8 * AHEAD + thread_index % 8, chunks, coming[turn]);
                threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
                for (uint i = 0; i < BLOCKS && c < chunks; ++i) {
                    const uint place = (BLOCKS * turn + i) % 2;
                    if (i + 1 < BLOCKS) {
                        stored.template load<F::OFFSETS>(ALL_BLOCKS * (before + c) + first_block + i + 1, lane, rows[1 - place]);
                    } else if (c + 8 < chunks) {
                        stored.template load<F::OFFSETS>(ALL_BLOCKS * (before + c + 8) + first_block, lane, rows[1 - place]);
                    }
                    // The weights are read again: registers are scarcer than reads.
                    simdgroup_barrier(mem_flags::mem_threadgroup);
                    found[i].fold(rows[place], weights, sum, lane);
                }
            }
        }
    }
    constexpr uint TOGETHER = Part::TOGETHER, STRIDE = TOGETHER * ROWS * 8;
#pragma unroll
    for (uint block = 0; block < COLUMNS / 8; block += TOGETHER) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint of = 0; of < TOGETHER; ++of) {
            for (uint i = 0; i < BLOCKS; ++i) {
                for (uint r = 0; r < EACH; ++r) {
                    threadgroup float* to = memory + STRIDE * sum + 64 * (EACH * (ALL_BLOCKS * of + first_block + i) + r) + 2 * lane;
                    to[0] = found[i].sums[block + of][2 * r];
                    to[1] = found[i].sums[block + of][2 * r + 1];
                }
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint index = thread_index; index < 8 * ROWS; index += 8 * COLUMNS) {
            columns.store(memory + index, STRIDE, residual, p, row + index / 8, block, index % 8);
        }
    }
}
