// Copies rows to shared memory, zeros in place of those outside a range.

constexpr int CHUNKS = WIDTH / 8;    // Pieces of 16 bytes of a row.
constexpr int STRIDE = 32 / CHUNKS;  // Rows that a warp copies at once.

// Where eight elements of a row are in a tile of HEIGHT rows, from `column` on, a multiple of eight.
template <int HEIGHT>
DEVICE u32 place_of(int row, int column) { return column / PANEL * (128 * HEIGHT) + row * 128 + (column % PANEL / 8 ^ row % 8) * 16; }

template <typename T>
DEVICE bool is_wide(const T* p, i64 stride) {
    return ((u64(p) | u64(stride * i64(sizeof(T)))) & 15) == 0;
}

// Eight elements as pairs of KV.
template <bool WIDE, typename T>
DEVICE void load(const T* from, u32 (&words)[4]) {
    if constexpr (WIDE && sizeof(T) == 4) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float4 four = reinterpret_cast<const float4*>(from)[i];
            words[2 * i] = pack<KV>(four.x, four.y);
            words[2 * i + 1] = pack<KV>(four.z, four.w);
        }
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            words[i] = pack<KV>(widen(from[2 * i]), widen(from[2 * i + 1]));
        }
    }
}

// The same of a row that may not exist: then zeros.
template <typename T>
DEVICE void load_if(bool exists, const T* from, u32 (&words)[4]) {
    if (!exists) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            words[i] = 0;
        }
    } else if ((u64(from) & 15) == 0) {
        load<true>(from, words);
    } else {
        load<false>(from, words);
    }
}

// Through registers, from `from` on; `any` is a row that exists.
template <int COUNT, bool WIDE, typename T>
DEVICE void convert_rows(u32 to, const T* any, const T* from, i64 stride, int begin, int end) {
#pragma unroll WIDE ? 2 : 1
    for (int i = 0; i < COUNT; i += 4 * STRIDE, from += 4 * stride) {
        u32 words[4][4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const bool exists = begin <= i + j * STRIDE && i + j * STRIDE < end;
            load<WIDE>(exists ? from + j * stride : any, words[j]);
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                words[j][n] = exists ? words[j][n] : 0;
            }
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            store_shared((to ^ (i + j * STRIDE) % 8 * 16) + (i + j * STRIDE) * 128, words[j]);
        }
    }
}

// By a warp: COUNT rows of those that start at `rows`, from `first` on, to a tile of HEIGHT; zeros for what lies outside `range`.
template <int COUNT, int HEIGHT, typename T>
DEVICE void copy_rows(int lane, u32 to, const T* rows, i64 stride, int first, KeyRange range) {
    const int row = lane / CHUNKS, column = lane % CHUNKS * 8;
    to += place_of<HEIGHT>(row, column);
    const T* from = rows + (first + row) * stride + column;
    const int begin = range.start - first - row, end = range.end - first - row;
    if (!is_wide(rows, stride)) {
        convert_rows<COUNT, false>(to, rows, from, STRIDE * stride, begin, end);
    } else if constexpr (!SAME<T, KV>) {
        convert_rows<COUNT, true>(to, rows, from, STRIDE * stride, begin, end);
    } else {
        const bool whole = range.start <= first && first + COUNT <= range.end;
#pragma unroll 8
        for (int i = 0; i < COUNT; i += STRIDE, from += STRIDE * stride) {
            copy_async((to ^ i % 8 * 16) + i * 128, from, whole || begin <= i && i < end ? 16 : 0);
        }
    }
}
