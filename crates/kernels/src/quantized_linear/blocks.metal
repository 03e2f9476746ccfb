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

// Of a chunk of 16 rows of x a lane's words of the low and of the high bytes, and what its two rows share.
struct RowBytes {
    uint low[4];
    uint high[4];
    float scales[2];
    int2 totals[2];
};

// Rows of x in device memory, 16 at a time, chunk by chunk: the lanes' words of the low and of the high bytes; after all of them the rows' scales, then the
// sums of each half.
struct StoredBytes {
    device const uint4* words;
    device const float* scales;
    device const int2* totals;

    StoredBytes(device const void* memory, ulong rows, ulong chunks) {
        words = reinterpret_cast<device const uint4*>(memory);
        scales = reinterpret_cast<device const float*>(words + 4 * rows * chunks);
        totals = reinterpret_cast<device const int2*>(scales + rows * chunks);
    }

    template <bool WITH_TOTALS>
    void load(ulong chunk, uint lane, thread RowBytes& bytes) const {
        const uint4 low = words[64 * chunk + lane], high = words[64 * chunk + 32 + lane];
        for (uint i = 0; i < 4; ++i) {
            bytes.low[i] = low[i];
            bytes.high[i] = high[i];
        }
        for (uint r = 0; r < 2; ++r) {
            const ulong row = 16 * chunk + 8 * r + lane / 4;
            bytes.scales[r] = scales[row];
            if (WITH_TOTALS) {
                bytes.totals[r] = totals[row];
            }
        }
    }
};

// Rows of x that are stored: those after the last are zero.
template <uint BLOCKS>
inline ulong stored_rows(constant Params& p) {
    return (p.m + 16 * BLOCKS - 1) / (16 * BLOCKS) * (16 * BLOCKS);
}

// Writes rows of x; a simdgroup has a chunk of 16.
template <typename T, uint BLOCKS>
[[kernel, max_total_threads_per_threadgroup(256)]] void quantized_row_bytes(
    device const T* x [[buffer(0)]],
    device T* stored [[buffer(1)]],
    constant Params& p [[buffer(2)]],
    uint group [[threadgroup_position_in_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]])
{
    await_launches();
    const ulong rows = stored_rows<BLOCKS>(p), chunk = LINEAR_SIMDGROUPS * ulong(group) + simdgroup, k = 32 * p.chunks;
    if (chunk >= rows / 16 * p.chunks) {
        return;
    }
    RowBytes bytes;
    for (uint r = 0; r < 2; ++r) {
        const ulong row = chunk / p.chunks * 16 + 8 * r + lane / 4, first = row * k + chunk % p.chunks * 32 + 4 * (lane % 4);
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
            bytes.low[2 * of + r] = low;
            bytes.high[2 * of + r] = high;
            total += simd_shuffle_xor(total, 1);
            bytes.totals[r][of] = total + simd_shuffle_xor(total, 2);
        }
    }
    device uint4* words = reinterpret_cast<device uint4*>(stored);
    device float* scales = reinterpret_cast<device float*>(words + 4 * rows * p.chunks);
    device int2* totals = reinterpret_cast<device int2*>(scales + rows * p.chunks);
    words[64 * chunk + lane] = uint4(bytes.low[0], bytes.low[1], bytes.low[2], bytes.low[3]);
    words[64 * chunk + 32 + lane] = uint4(bytes.high[0], bytes.high[1], bytes.high[2], bytes.high[3]);
    for (uint r = 0; r < 2 && lane % 4 == 0; ++r) {
        scales[16 * chunk + 8 * r + lane / 4] = bytes.scales[r];
        totals[16 * chunk + 8 * r + lane / 4] = bytes.totals[r];
    }
}

// Eight chunks of 64 rows of weights in threadgroup memory: as signed bytes, maybe sixteenfold, and their scales and offsets.
template <typename F>
struct SharedWeights {
    // Words of a row, and numbers of a chunk: with some between, so that neighbours are in other banks.
    static constexpr constant uint STRIDE = 72, NUMBERS = 68;
    threadgroup uint* words;
    threadgroup float* numbers;

    SharedWeights(threadgroup float* memory) : words(reinterpret_cast<threadgroup uint*>(memory)), numbers(memory + 64 * STRIDE) {}

    // Chunk c of a row. The words of either half alternate.
    void store(uint row, uint c, Packed<F> chunk) const {
        threadgroup uint4* to = reinterpret_cast<threadgroup uint4*>(words + STRIDE * row + 8 * c);
        to[0] = uint4(chunk.multiples(0), chunk.multiples(4), chunk.multiples(1), chunk.multiples(5));
        to[1] = uint4(chunk.multiples(2), chunk.multiples(6), chunk.multiples(3), chunk.multiples(7));
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

// A threadgroup's columns, which are rows of weights: 64 of a layer; or, gated, 32 of two, eight of each in turn.
template <uint GATED, typename T, typename C>
struct Columns {
    // Blocks of eight columns that are stored together.
    static constexpr constant uint TOGETHER = 1;

    Layer<T, C> layer;
    uint number;
    uint first;

    Columns(Layers<T, C> of, uint tile) : layer(of.first), number(0), first(64 * tile) {
        const uint before_second = (of.first.n + 63) / 64, before_third = before_second + (of.second.n + 63) / 64;
        if (tile >= before_third) {
            layer = of.third;
            number = 2;
            first -= 64 * before_third;
        } else if (tile >= before_second) {
            layer = of.second;
            number = 1;
            first -= 64 * before_second;
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

template <typename T, typename C>
struct Columns<1, T, C> {
    static constexpr constant uint TOGETHER = 2;

    Layer<T, C> gate;
    Layer<T, C> factor;
    uint first;

    Columns(Layers<T, C> of, uint tile) : gate(of.first), factor(of.second), first(32 * tile) {}

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

// A simdgroup's sums of 16 rows and eight times eight columns.
template <typename F>
struct RowSums {
    typedef Sums<Packed<F>::TIMES> Sum;

    float sums[8][4];

    template <uint HALF>
    void fold_half(thread const RowBytes& x, SharedWeights<F> weights, uint block, uint c, uint lane, thread const uint (&columns)[2]) {
        int low[4], high[4];
        ByteProducts<HALF, false>::find(low, x.low, columns, Sum::AS_FLOAT, lane);
        ByteProducts<HALF, true>::find(high, x.high, columns, Sum::AS_FLOAT, lane);
        const float2 scale = weights.number(HALF % 2, block, c, lane);
        for (uint e = 0; e < 4; ++e) {
            sums[block][e] = fma(scale[e % 2] * x.scales[e / 2], Sum::rounded(low[e], high[e]), sums[block][e]);
        }
        if (F::OFFSETS) {
            const float2 offset = weights.number(32 / F::GROUP + HALF % 2, block, c, lane);
            for (uint e = 0; e < 4; ++e) {
                const int2 totals = x.totals[e / 2];
                const int of = HALF == 2 ? totals.x + totals.y : totals[HALF % 2];
                sums[block][e] = fma(offset[e % 2] * x.scales[e / 2], float(of), sums[block][e]);
            }
        }
    }

    void fold(thread const RowBytes& x, SharedWeights<F> weights, uint c, uint lane) {
#pragma unroll
        for (uint block = 0; block < 8; ++block) {
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

// Eight chunks of a threadgroup's rows of weights on their way: a thread has chunk `thread_index % 8` of two.
template <typename F>
struct Coming {
    PackedRows<2> rows;
    Packed<F> packed[2];

    void load(uint c, uint chunks) {
        for (uint i = 0; i < 2 && c < chunks; ++i) {
            const PackedPlace<F> place(rows.at[i], c, chunks);
            if (rows.are_wide()) {
                packed[i].template load<Aligned>(place, 0);
            } else {
                packed[i].template load<Anywhere>(place, 0);
            }
        }
    }

    void store(SharedWeights<F> to, uint thread_index) const {
        for (uint i = 0; i < 2; ++i) {
            to.store(thread_index / 8 + 32 * i, thread_index % 8, packed[i]);
        }
    }
};

template <typename F, typename T, typename N, typename C, uint GATED, uint BLOCKS>
[[kernel, max_total_threads_per_threadgroup(256)]] void quantized_linear_blocks(
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
    typedef Columns<GATED, T, C> Part;
    const Layers<T, C> layers = {{w0, b0, y0, uint(p.n[0])}, {w1, b1, y1, uint(p.n[1])}, {w2, b2, y2, uint(p.n[2])}};
    const uint down = (uint(p.m) + 16 * BLOCKS - 1) / (16 * BLOCKS);
    // Neighbours share weights.
    const Part columns(layers, group / down);
    const uint row = 16 * BLOCKS * (group % down), chunks = uint(p.chunks), thread_index = 32 * simdgroup + lane;
    const SharedWeights<F> weights(memory);
    RowSums<F> found[BLOCKS];
    for (uint i = 0; i < BLOCKS; ++i) {
        for (uint block = 0; block < 8; ++block) {
            for (uint e = 0; e < 4; ++e) {
                found[i].sums[block][e] = 0.0f;
            }
        }
    }
    Coming<F> coming;
    for (uint i = 0; i < 2; ++i) {
        coming.rows.at[i] = columns.row(thread_index / 8 + 32 * i, p);
    }
    coming.load(thread_index % 8, chunks);
    await_launches();
    const StoredBytes stored(x, stored_rows<BLOCKS>(p), chunks);
    // Sixteen rows are on their way while those before them are multiplied.
    constexpr uint TURNS = BLOCKS > 1 ? 2 : 1;
    RowBytes rows[TURNS];
    if (simdgroup < chunks) {
        stored.template load<F::OFFSETS>(row / 16 * ulong(chunks) + simdgroup, lane, rows[0]);
    }
    for (uint first = 0; first < chunks; first += 8) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        coming.store(weights, thread_index);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        coming.load(first + 8 + thread_index % 8, chunks);
        const uint c = first + simdgroup;
        if (c < chunks) {
#pragma unroll
            for (uint i = 0; i < BLOCKS; ++i) {
                const RowBytes now = rows[i % TURNS];
                if (i + 1 < BLOCKS) {
                    stored.template load<F::OFFSETS>((row / 16 + i + 1) * ulong(chunks) + c, lane, rows[(i + 1) % TURNS]);
                } else if (c + 8 < chunks) {
                    stored.template load<F::OFFSETS>(row / 16 * ulong(chunks) + c + 8, lane, rows[0]);
                }
                // The weights are read again: registers are scarcer than reads.
                simdgroup_barrier(mem_flags::mem_threadgroup);
                found[i].fold(now, weights, simdgroup, lane);
            }
        }
    }
    constexpr uint TOGETHER = Part::TOGETHER, STRIDE = TOGETHER * BLOCKS * 128;
#pragma unroll
    for (uint block = 0; block < 8; block += TOGETHER) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint of = 0; of < TOGETHER; ++of) {
            for (uint i = 0; i < BLOCKS; ++i) {
                for (uint r = 0; r < 2; ++r) {
                    threadgroup float* to = memory + STRIDE * simdgroup + 128 * (BLOCKS * of + i) + 64 * r + 2 * lane;
                    to[0] = found[i].sums[block + of][2 * r];
                    to[1] = found[i].sums[block + of][2 * r + 1];
                }
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint index = thread_index; index < 128 * BLOCKS; index += 256) {
            columns.store(memory + index, STRIDE, residual, p, row + index / 8, block, index % 8);
        }
    }
}
