// Attention of many queries on the tensor cores of compute capability 9.0: fast precision, in CUDA C++.
//
// A thread block of three warpgroups walks over tiles of 128 queries of one head, those with most keys first. One warpgroup copies queries, keys
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

// Comes after the wait for the next item: across a branch the compiler does not move it before the softmax.
DEVICE void finish_sums(float (&sums)[WIDTH / 2]) {
    await_products<0>();
    settle(sums);
}

DEVICE void attend(Computer& computer, const Tile& tile, const KeyRange (&ranges)[2], u32 turn, Softmax& softmax, float (&sums)[WIDTH / 2]) {
    const Memory memory = computer.memory;
    float scores[BLOCK / 2], factors[2];
    u32 weights[BLOCK / 16][4];
#pragma unroll
    for (int i = 0; i < BLOCK / 2; ++i) {
        scores[i] = 0.0f;
    }
    const int blocks = tile.blocks();
    wait(memory.own_full(), turn % 2);
    computer.begin_scores<OVERWRITTEN>(scores, 0, computer.await_item(computer.items));
    await_products<0>();
    settle(scores);
    computer.release(memory.empty(computer.items));
    if (blocks == 1) {
        computer.release(memory.own_empty());
    }
    ++computer.items;
    mask(scores, tile.all, tile.first_key(0), computer.column(), ranges);
    softmax.apply(scores, factors);
    for (int block = 1; block < blocks; ++block) {
        const u32 keys = computer.await_item(computer.items);
        finish_sums(sums);
        if (block > 1) {
            computer.release(memory.empty(computer.items - 1));
        }
        computer.narrow(scores, weights);
        settle(scores);
        computer.begin_scores<OVERWRITTEN>(scores, 0, keys);
        rescale(sums, factors);
        computer.begin_sums(sums, weights, computer.await_item(computer.items + 1));
        await_products<1>();
        settle(scores);
        computer.release(memory.empty(computer.items));
        if (block == blocks - 1) {
            computer.release(memory.own_empty());
        }
        mask(scores, tile.all, tile.first_key(block), computer.column(), ranges);
        softmax.apply(scores, factors);
        computer.items += 2;
    }
    const u32 values = computer.await_item(computer.items);
    finish_sums(sums);
    if (blocks > 1) {
        computer.release(memory.empty(computer.items - 1));
    }
    computer.narrow(scores, weights);
    rescale(sums, factors);
    computer.begin_sums(sums, weights, values);
    finish_sums(sums);
    computer.release(memory.empty(computer.items));
    ++computer.items;
}

DEVICE void compute_all(Memory memory, const Schedule& schedule, Y* y) {
    const ScoreParams& s = schedule.p.score;
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
            attend(computer, tile, ranges, turn++, softmax, sums);
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int query = tile.first + computer.row(r), queries = int(s.queries);
            Y* out = y + row_of(schedule.p.y, tile.batch, tile.head, min(query, queries - 1));
            computer.store_row(sums, r, softmax.inverse(r), out, query < queries);
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
DEVICE void attend_all(Memory memory, const Params& p, const Q* q, const KV* k, const KV* v, const int* positions, const int* lengths, Y* y, Places places) {
    const Schedule schedule(p, positions, lengths);
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(TO_COPY));
        copy_all(memory, schedule, q, k, v, places);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(TO_COMPUTE));
        compute_all(memory, schedule, y);
    }
}
