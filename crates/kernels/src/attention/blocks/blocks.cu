// Attention in blocks of keys on the tensor cores of compute capability 9.0: a row's bits depend on the row and on its keys alone.
//
// A warpgroup copies queries, keys and values to shared memory, a block of keys or values at a time, into a ring; others have 64 rows of a tile each. Of a block there are scores by wgmma, weights relative to the block's own greatest score, rounded to the keys' type,
// and sums of values by wgmma, from zero. These are added up block by block, or left to combine.cu, where thread blocks share out the blocks.
//
// Macros: Q and Y (float, f16 or bf16), KV (f16 or bf16) and WIDTH (64 or 128, of queries, keys and values).

constexpr int THREADS = 128 + 2 * ROWS;

// A quarter of a tile's queries.
DEVICE void copy_queries(Copier& copier, const Schedule& schedule, const Tile& tile, const Q* q) {
    const ScoreParams& s = schedule.p.score;
    const int column = copier.lane % CHUNKS * 8;
#pragma unroll 1
    for (int i = 0; i < ROWS / 4; i += 4 * STRIDE) {
        u32 words[4][4];
        const int first = copier.warp * (ROWS / 4) + i + copier.lane / CHUNKS;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int row = tile.first + first + j * STRIDE;
            load_if(row < schedule.rows, q + row_of(s.q, tile.batch, schedule.head(tile, row), schedule.query(row)) + column, words[j]);
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            store_shared(copier.memory.own(0) + place_of<ROWS>(first + j * STRIDE, column), words[j]);
        }
    }
    copier.pending = true;
}

// `places` copies a block of a sequence's keys or values, wherever they are.
template <typename Places>
DEVICE void copy_all(Memory memory, const Schedule& schedule, const Q* q, const KV* k, const KV* v, Places places) {
    const ScoreParams& s = schedule.p.score;
    Copier copier = {memory, int(threadIdx.x / 32 % 4), int(threadIdx.x % 32), 0, false};
    u32 turn = 0;
    for (int round = 0; round < schedule.rounds(); ++round) {
        Tile tile;
        if (!schedule.find(round, tile) || tile.begin == tile.end) {
            continue;
        }
        const KV* keys = k + row_of(s.k, tile.batch, tile.kv_head, 0);
        const KV* values = v + row_of(schedule.p.v, tile.batch, tile.kv_head, 0);
        for (int block = tile.begin; block < tile.end; ++block) {
            copier.add_item([&](u32 stage) { places.template copy<BLOCK>(copier.lane, stage, keys, s.k.token, tile.batch, tile.some, block * BLOCK); }, [] {});
            if (block == tile.begin) {
                copier.await_own(turn++);
                copy_queries(copier, schedule, tile, q);
            }
            copier.add_item([&](u32 stage) { places.template copy<BLOCK>(copier.lane, stage, values, schedule.p.v.token, tile.batch, tile.some, block * BLOCK); }, [] {});
        }
    }
    copier.finish();
}

// Turns scores into weights.
DEVICE void weigh(float (&scores)[BLOCK / 2], float scale, State (&states)[2]) {
    float most[4], shifts[2];
#pragma unroll
    for (int i = 0; i < BLOCK / 2; ++i) {
        most[i % 4] = i < 4 ? scores[i] : fmaxf(most[i % 4], scores[i]);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float greatest = fmaxf(most[2 * r], most[2 * r + 1]);
#pragma unroll
        for (int lanes = 1; lanes <= 2; lanes *= 2) {
            greatest = fmaxf(greatest, __shfl_xor_sync(~0u, greatest, lanes));
        }
        states[r].base = greatest == NEVER ? NEVER : __fmul_rn(greatest, scale);
        shifts[r] = greatest == NEVER ? 0.0f : states[r].base;
    }
#pragma unroll
    for (int i = 0; i < BLOCK / 2; ++i) {
        scores[i] = exp2_approximate(__fmaf_rn(scores[i], scale, -shifts[i / 2 % 2]));
    }
    // Of every eighth key, the sums of four that are 8 and 64 apart; these, and the keys next to each other.
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float sums[2];
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            float four[4];
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                const float* of = scores + 8 * n + 2 * r + c;
                four[n] = __fadd_rn(__fadd_rn(of[0], of[4]), __fadd_rn(of[32], of[36]));
            }
            sums[c] = __fadd_rn(__fadd_rn(four[0], four[1]), __fadd_rn(four[2], four[3]));
        }
        float sum = __fadd_rn(sums[0], sums[1]);
#pragma unroll
        for (int lanes = 1; lanes <= 2; lanes *= 2) {
            sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, lanes));
        }
        states[r].sum = sum;
    }
}

// Leaves a block's sums and states: of all rows and blocks the sums, then the states.
DEVICE void leave_block(const Schedule& schedule, const Computer& computer, const Tile& tile, const float (&sums)[WIDTH / 2], const State (&states)[2], float* found) {
    const ScoreParams& s = schedule.p.score;
    State* const to_states = reinterpret_cast<State*>(found + i64(s.batch * s.heads * s.queries) * schedule.parts() * WIDTH);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = tile.first + computer.row(r);
        if (row >= schedule.rows) {
            continue;
        }
        const i64 at = i64(schedule.place(tile, row)) * schedule.parts() + tile.begin;
        float* const to = found + at * WIDTH + computer.column();
#pragma unroll
        for (int i = 0; i < WIDTH / 8; ++i) {
            *reinterpret_cast<float2*>(to + 8 * i) = make_float2(sums[4 * i + 2 * r], sums[4 * i + 2 * r + 1]);
        }
        if (computer.thread % 4 == 0) {
            to_states[at] = states[r];
        }
    }
}

DEVICE void compute_all(Memory memory, const Schedule& schedule, Y* y, float* found) {
    const ScoreParams& s = schedule.p.score;
    Computer computer = {memory, int(threadIdx.x / 128) - 1, int(threadIdx.x % 128), 0};
    const float scale = s.scale * LOG2_E;
    u32 turn = 0;
    for (int round = 0; round < schedule.rounds(); ++round) {
        Tile tile;
        if (!schedule.find(round, tile) || (schedule.is_split() && tile.begin == tile.end)) {
            continue;
        }
        KeyRange ranges[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            ranges[r] = attended(s, schedule.positions, schedule.lengths, tile.batch, schedule.query(tile.first + computer.row(r)));
        }
        State states[2] = {{NEVER, 0.0f}, {NEVER, 0.0f}};
        float sums[WIDTH / 2] = {};
        if (tile.begin < tile.end) {
            wait(memory.own_full(), turn++ % 2);
        }
        for (int block = tile.begin; block < tile.end; ++block) {
            float scores[BLOCK / 2], part[WIDTH / 2] = {};
            u32 weights[BLOCK / 16][4];
            State next[2];
            computer.begin_scores(scores, 0, computer.await_item(computer.items));
            await_products<0>();
            settle(scores);
            computer.release(memory.empty(computer.items++));
            if (block == tile.end - 1) {
                computer.release(memory.own_empty());
            }
            mask(scores, tile.all, block * BLOCK, computer.column(), ranges);
            weigh(scores, scale, next);
            computer.narrow(scores, weights);
            const u32 values = computer.await_item(computer.items);
            settle(part);
            computer.begin_sums(part, weights, values);
            await_products<0>();
            settle(part);
            computer.release(memory.empty(computer.items++));
            if (schedule.is_split()) {
                leave_block(schedule, computer, tile, part, next, found);
                continue;
            }
            const Factors factors[2] = {add(states[0], next[0]), add(states[1], next[1])};
#pragma unroll
            for (int i = 0; i < WIDTH / 2; ++i) {
                sums[i] = factors[i / 2 % 2].combine(sums[i], part[i]);
            }
        }
#pragma unroll
        for (int r = 0; r < 2 && !schedule.is_split(); ++r) {
            const int row = tile.first + computer.row(r);
            Y* out = y + row_of(schedule.p.y, tile.batch, schedule.head(tile, row), schedule.query(row));
            computer.store_row(sums, r, inverse(states[r]), out, row < schedule.rows);
        }
    }
}

// `y` where tiles have all their blocks, or else `found`.
template <typename Places>
DEVICE void attend_all(const Params& p, const SplitParams& split, const Q* q, const KV* k, const KV* v, const int* positions, const int* lengths, Y* y, float* found,
                       Places places) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const Memory memory = {shared_address(shared)};
    memory.prepare();
    admit_launches();
    await_launches();
    const Schedule schedule(p, split, positions, lengths);
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
        copy_all(memory, schedule, q, k, v, places);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
        compute_all(memory, schedule, y, found);
    }
}
