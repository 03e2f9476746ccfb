// The warpgroup that copies queries, keys and values to shared memory, zeros in place of what no query of the tile attends.

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

// One warp of four: queries are shared out by rows, keys and values by turns.
struct Copier {
    Memory memory;
    int warp;
    int lane;
    u32 items;
    // Whether queries are in flight whose arrival has not been announced.
    bool pending;

    DEVICE void announce(u32 barrier) {
        if (lane == 0) {
            arrive(barrier);
        }
    }

    // Waits for all that is on its way, and announces queries.
    DEVICE void finish() {
        asm volatile("cp.async.wait_all;\nfence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
        if (pending) {
            announce(memory.queries_full());
            pending = false;
        }
    }

    // Those who make room may need the queries first.
    DEVICE void await_room(u32 barrier, u32 parity) {
        if (!__all_sync(~0u, has_passed(barrier, parity))) {
            finish();
            wait(barrier, parity);
        }
    }

    // COUNT rows of those that start at `rows`, from `first` on; zeros for what lies outside `range`.
    template <int COUNT, typename T>
    DEVICE void copy(u32 to, const T* rows, i64 stride, int first, KeyRange range) {
        const int row = lane / CHUNKS, column = lane % CHUNKS * 8;
        to += column / PANEL * PANEL_BYTES + row * 128 + (column % PANEL / 8 ^ row) * 16;
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

    DEVICE void copy_item(const KV* rows, i64 stride, int first, KeyRange range) {
        if (items % 4 == warp) {
            await_room(memory.empty(items), items / STAGES % 2 ^ 1);
            copy<KEYS>(memory.stage(items), rows, stride, first, range);
            finish();
            announce(memory.full(items));
        }
        ++items;
    }

    DEVICE void copy_queries(const Q* rows, i64 stride, int first, int end, u32 turn) {
        await_room(memory.queries_empty(), turn % 2 ^ 1);
        copy<ROWS / 4>(memory.queries() + warp * (ROWS / 4) * 128, rows, stride, first + warp * (ROWS / 4), {0, end});
        pending = true;
    }
};

DEVICE void copy_all(Memory memory, const Schedule& schedule, const Q* q, const KV* k, const KV* v) {
    const ScoreParams& s = schedule.p.score;
    Copier copier = {memory, int(threadIdx.x / 32 % 4), int(threadIdx.x % 32), 0, false};
    u32 turn = 0;
    for (int round = 0; round < schedule.rounds(); ++round) {
        Tile tile;
        if (!schedule.find(round, tile) || tile.blocks() == 0) {
            continue;
        }
        const int kv_head = tile.head / int(s.heads / s.kv_heads), blocks = tile.blocks();
        const KV* keys = k + row_of(s.k, tile.batch, kv_head, 0);
        const KV* values = v + row_of(schedule.p.v, tile.batch, kv_head, 0);
        copier.copy_queries(q + row_of(s.q, tile.batch, tile.head, 0), s.q.token, tile.first, int(s.queries), turn++);
        for (int block = 0; block <= blocks; ++block) {
            if (block < blocks) {
                copier.copy_item(keys, s.k.token, tile.first_key(block), tile.some);
            }
            if (block > 0) {
                copier.copy_item(values, schedule.p.v.token, tile.first_key(block - 1), tile.some);
            }
        }
    }
    copier.finish();
}
