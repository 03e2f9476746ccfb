// Attention of many queries on the tensor cores of compute capability 9.0: fast precision, in CUDA C++.
//
// A thread block of three warpgroups walks over tiles of 128 queries of one head, as Schedule gives them. One warpgroup copies queries, keys
// and values to shared memory, 128 keys or values at a time, into a ring of buffers. The other two have 64 queries each: scores by wgmma, a running
// softmax in base 2, weights rounded to the keys' type, sums of values by wgmma, which go on during the next softmax. Queries are read once, keys and
// values once for each tile of queries.
//
// Macros: Q and Y (float, f16 or bf16), KV (f16 or bf16) and WIDTH (64 or 128, of queries, keys and values).

// `places` adds a block of a sequence's keys or values to the ring, wherever they are.
template <typename Places>
DEVICE void copy_all(Memory memory, const Schedule& schedule, const Q* q, const KV* k, const KV* v, Places places) {
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
        copier.await_own(turn++);
        copier.copy_own(0, q + row_of(s.q, tile.batch, tile.head, 0), s.q.token, tile.first, int(s.queries));
        for (int block = 0; block <= blocks; ++block) {
            if (block < blocks) {
                places.add(copier, false, keys, s.k.token, tile, kv_head, tile.first_key(block));
            }
            if (block > 0) {
                places.add(copier, true, values, schedule.p.v.token, tile, kv_head, tile.first_key(block - 1));
            }
        }
    }
    copier.finish();
}

// Attention of a thread's rows in a tile. Sums of a block's values go on while the next block's scores and weights are found.
struct Attention {
    Computer& computer;
    const Tile& tile;
    const KeyRange (&ranges)[2];
    Softmax& softmax;
    float (&sums)[WIDTH / 2];
    float scores[BLOCK / 2];
    // Of two blocks in turn: products read one while the other is written.
    u32 weights[2][BLOCK / 16][4];

    // Weights relative to 2^bases, and their sums in each row. Whether all are less than two: greater ones, infinity and NaN have a bit in common.
    DEVICE bool weigh(u32 (&weights)[BLOCK / 16][4], const float (&bases)[2], float (&row_sums)[2]) const {
        u32 bits = 0;
        float parts[4] = {};
#pragma unroll
        for (int i = 0; i < BLOCK / 4; ++i) {
            const float low = exp2_approximate(fmaf(scores[2 * i], softmax.scale, -bases[i % 2]));
            const float high = exp2_approximate(fmaf(scores[2 * i + 1], softmax.scale, -bases[i % 2]));
            parts[2 * (i % 2)] += low;
            parts[2 * (i % 2) + 1] += high;
            weights[i / 4][i % 4] = pack<KV>(low, high);
            bits |= weights[i / 4][i % 4];
        }
        row_sums[0] = parts[0] + parts[1];
        row_sums[1] = parts[2] + parts[3];
        return (bits & 0x40004000) == 0;
    }

    // Turns a block's scores into weights.
    template <int TURN, bool IS_FIRST>
    DEVICE void apply_softmax(int block) {
        mask(scores, tile.all, tile.first_key(block), computer.column(), ranges);
        float row_sums[2];
        if (IS_FIRST || !__all_sync(~0u, weigh(weights[TURN], softmax.shift, row_sums))) {
            float greatest[2], factors[2];
            find_greatest(scores, greatest);
            softmax.shrink<MARGIN>(greatest, factors);
            if constexpr (!IS_FIRST) {
                await_products<0>();
                settle(sums);
                rescale(sums, factors);
            }
            const float bases[2] = {softmax.base(0), softmax.base(1)};
            weigh(weights[TURN], bases, row_sums);
        }
        softmax.sum[0] += row_sums[0];
        softmax.sum[1] += row_sums[1];
    }

    // The weights of a block, and the sums of the one before.
    template <int TURN, bool IS_SECOND>
    DEVICE void take(int block) {
        const Memory memory = computer.memory;
        computer.begin_scores<OVERWRITTEN>(scores, 0, computer.await_item(computer.items));
        computer.begin_sums(sums, weights[1 - TURN], computer.await_item(computer.items + 1));
        await_products<1>();
        settle(scores);
        if (!IS_SECOND) {
            computer.release(memory.empty(computer.items - 1));
        }
        computer.release(memory.empty(computer.items));
        if (block == tile.blocks() - 1) {
            computer.release(memory.own_empty());
        }
        apply_softmax<TURN, false>(block);
        computer.items += 2;
    }

    DEVICE void run(u32 turn) {
        const Memory memory = computer.memory;
        const int blocks = tile.blocks();
#pragma unroll
        for (int i = 0; i < BLOCK / 2; ++i) {
            scores[i] = 0.0f;
        }
        wait(memory.own_full(), turn % 2);
        computer.begin_scores<OVERWRITTEN>(scores, 0, computer.await_item(computer.items));
        await_products<0>();
        settle(scores);
        computer.release(memory.empty(computer.items));
        if (blocks == 1) {
            computer.release(memory.own_empty());
        }
        ++computer.items;
        apply_softmax<0, true>(0);
        int block = 1;
        if (block < blocks) {
            take<1, true>(block++);
        }
        for (; block + 1 < blocks; block += 2) {
            take<0, false>(block);
            take<1, false>(block + 1);
        }
        if (block < blocks) {
            take<0, false>(block);
        }
        const u32 values = computer.await_item(computer.items);
        if (blocks % 2 == 1) {
            computer.begin_sums(sums, weights[0], values);
        } else {
            computer.begin_sums(sums, weights[1], values);
        }
        await_products<0>();
        settle(sums);
        if (blocks > 1) {
            computer.release(memory.empty(computer.items - 1));
        }
        computer.release(memory.empty(computer.items));
        ++computer.items;
    }

    // Room for greater scores, as a power of two: it costs weights of 16 bits no precision that shows.
    static constexpr int MARGIN = 8;
};

// The computers' own barrier.
DEVICE void meet_computers() { asm volatile("bar.sync 1, 256;" ::: "memory"); }

// A warp's sixteen rows of a tile, which it has stored, to all ranks, in units of T.
template <typename T>
DEVICE void push_rows(const Params& p, const Tile& tile, int first, const Y* y, const Peers& peers) {
    constexpr u32 UNITS = WIDTH * sizeof(Y) / sizeof(T), EACH = sizeof(T) / sizeof(Y);
    __syncwarp();
    const u32 count = u32(min(max(i64(p.score.queries) - first, i64(0)), i64(16))) * UNITS;
    for (u32 i = threadIdx.x % 32; i < count; i += 32) {
        const u64 at = row_of(p.y, tile.batch, tile.head, first + int(i / UNITS)) + i % UNITS * EACH, row = at / peers.push.width;
        const T unit = *reinterpret_cast<const T*>(y + at);
#pragma unroll
        for (u32 rank = 0; rank < RANKS; ++rank) {
            if (rank < peers.push.ranks) {
                const u64 to = (row * peers.push.ranks + peers.push.rank) * peers.push.width + (at - row * peers.push.width);
                *reinterpret_cast<T*>(reinterpret_cast<Y*>(peers.whole(rank)) + to) = unit;
            }
        }
    }
}

DEVICE void compute_all(Memory memory, const Schedule& schedule, Y* y, const Peers& peers) {
    const ScoreParams& s = schedule.p.score;
    const u32 lane = threadIdx.x % 32;
    bool has_room = false, has_asked = false;
    if (PUSHES && blockIdx.x == 0 && threadIdx.x < 128 + 32) {
        peers.announce(lane);
    }
    Computer computer = {memory, int(threadIdx.x / 128) - 1, int(threadIdx.x % 128), 0};
    u32 turn = 0;
    for (int round = 0; round < schedule.rounds(); ++round) {
        Tile tile;
        if (!schedule.find(round, tile)) {
            continue;
        }
        Softmax softmax = {{NEVER, NEVER}, {0.0f, 0.0f}, s.scale * LOG2_E};
        float sums[WIDTH / 2] = {};
        if (tile.blocks() != 0) {
            KeyRange ranges[2];
            find_ranges(schedule, tile, computer, ranges);
            Attention{computer, tile, ranges, softmax, sums}.run(turn++);
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int query = tile.first + computer.row(r), queries = int(s.queries);
            Y* out = y + row_of(schedule.p.y, tile.batch, tile.head, min(query, queries - 1));
            computer.store_row(sums, r, softmax.inverse(r), out, query < queries);
        }
        if (PUSHES) {
            has_room = has_asked ? has_room : __all_sync(~0u, peers.await_room(lane));
            has_asked = true;
            const int first = tile.first + computer.row(0) - int(lane / 4);
            if (!has_room) {
            } else if (((u64(y) | u64(peers.whole(peers.push.rank)) | peers.push.width * sizeof(Y)) & 15) == 0) {
                push_rows<uint4>(schedule.p, tile, first, y, peers);
            } else {
                push_rows<Y>(schedule.p, tile, first, y, peers);
            }
        }
    }
    if (PUSHES) {
        meet_computers();
        if (threadIdx.x < 128 + 32) {
            peers.finish(lane);
        }
    }
}

DEVICE Memory prepare() {
    extern __shared__ __align__(1024) unsigned char shared[];
    const Memory memory = {shared_address(shared)};
    memory.prepare();
    return memory;
}

template <typename Places>
DEVICE void attend_all(Memory memory, const Params& p, const Q* q, const KV* k, const KV* v, const int* positions, const int* lengths, Y* y, const Peers& peers, Places places) {
    const Schedule schedule(p, positions, lengths);
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        copy_all(memory, schedule, q, k, v, places);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
        compute_all(memory, schedule, y, peers);
    }
}
