// The warpgroup that copies rows to shared memory, zeros in place of those outside a range.

constexpr int CHUNKS = WIDTH / 8;    // Pieces of 16 bytes of a row.
constexpr int STRIDE = 32 / CHUNKS;  // Rows that a warp copies at once.

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

// One warp of four: own tiles are shared out by rows, items by turns.
struct Copier {
    Memory memory;
    int warp;
    int lane;
    u32 items;
    // Whether own tiles are in flight whose arrival has not been announced.
    bool pending;

    DEVICE void announce(u32 barrier) {
        if (lane == 0) {
            arrive(barrier);
        }
    }

    // Waits for all that is on its way, and announces own tiles.
    DEVICE void finish() {
        asm volatile("cp.async.wait_all;\nfence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
        if (pending) {
            announce(memory.own_full());
            pending = false;
        }
    }

    // Those who make room may need own tiles first.
    DEVICE void await_room(u32 barrier, u32 parity) {
        if (!__all_sync(~0u, has_passed(barrier, parity))) {
            finish();
            wait(barrier, parity);
        }
    }

    // COUNT rows of those that start at `rows`, from `first` on, to a tile of HEIGHT; zeros for what lies outside `range`.
    template <int COUNT, int HEIGHT, typename T>
    DEVICE void copy(u32 to, const T* rows, i64 stride, int first, KeyRange range) {
        const int row = lane / CHUNKS, column = lane % CHUNKS * 8;
        to += column / PANEL * (128 * HEIGHT) + row * 128 + (column % PANEL / 8 ^ row) * 16;
        const T* from = rows + (first + row) * stride + column;
        const int begin = range.start - first - row, end = range.end - first - row;
        if (!is_wide(rows, stride)) {
            convert<COUNT, false>(to, rows, from, STRIDE * stride, begin, end);
        } else if constexpr (!SAME<T, KV>) {
            convert<COUNT, true>(to, rows, from, STRIDE * stride, begin, end);
        } else {
            const bool whole = range.start <= first && first + COUNT <= range.end;
#pragma unroll 8
            for (int i = 0; i < COUNT; i += STRIDE, from += STRIDE * stride) {
                copy_async((to ^ i % 8 * 16) + i * 128, from, whole || begin <= i && i < end ? 16 : 0);
            }
        }
    }

    // The same through registers, from `from` on; `any` is a row that exists.
    template <int COUNT, bool WIDE, typename T>
    DEVICE void convert(u32 to, const T* any, const T* from, i64 stride, int begin, int end) {
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

    // What `fill` copies to a stage; `beside` works while it is in flight.
    template <typename Fill, typename Beside>
    DEVICE void add_item(Fill fill, Beside beside) {
        if (items % COPYING == warp) {
            await_room(memory.empty(items), items / STAGES % 2 ^ 1);
            fill(memory.stage(items));
            beside();
            finish();
            announce(memory.full(items));
        }
        ++items;
    }

    template <typename Beside>
    DEVICE void copy_item(const KV* rows, i64 stride, int first, KeyRange range, Beside beside) {
        add_item([&](u32 stage) { copy<BLOCK, BLOCK>(stage, rows, stride, first, range); }, beside);
    }

    DEVICE void copy_item(const KV* rows, i64 stride, int first, KeyRange range) {
        copy_item(rows, stride, first, range, [] {});
    }

    DEVICE void await_own(u32 turn) { await_room(memory.own_empty(), turn % 2 ^ 1); }

    // A quarter of a tile, whose arrival is announced with that of the next item.
    template <typename T>
    DEVICE void copy_own(int which, const T* rows, i64 stride, int first, int end) {
        copy<ROWS / 4, ROWS>(memory.own(which) + warp * (ROWS / 4) * 128, rows, stride, first + warp * (ROWS / 4), {0, end});
        pending = true;
    }
};
