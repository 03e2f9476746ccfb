// The warpgroups that compute: 64 queries each.

// Thread t of a warpgroup has rows t / 32 · 16 + t % 32 / 4 (and 8 more) and of each eight columns two from t % 4 · 2 on.
struct Softmax {
    float greatest[2];
    float sum[2];
    // What multiplies scores.
    float scale;

    // Turns scores into weights and tells what multiplies the sums before.
    DEVICE void apply(float (&scores)[KEYS / 2], float (&factors)[2]) {
        float most[4], sums[4] = {}, bases[2];
#pragma unroll
        for (int i = 0; i < KEYS / 2; ++i) {
            most[i % 4] = i < 4 ? scores[i] : fmaxf(most[i % 4], scores[i]);
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            most[r] = fmaxf(greatest[r], fmaxf(most[2 * r], most[2 * r + 1]));
        }
#pragma unroll
        for (int lanes = 1; lanes <= 2; lanes *= 2) {
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                most[r] = fmaxf(most[r], __shfl_xor_sync(~0u, most[r], lanes));
            }
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            bases[r] = most[r] == NEVER ? 0.0f : most[r] * scale;
            factors[r] = exp2_approximate(fmaf(greatest[r], scale, -bases[r]));
            greatest[r] = most[r];
        }
#pragma unroll
        for (int i = 0; i < KEYS / 2; ++i) {
            scores[i] = exp2_approximate(fmaf(scores[i], scale, -bases[i / 2 % 2]));
            sums[i % 4] += scores[i];
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            sum[r] = fmaf(sum[r], factors[r], sums[2 * r] + sums[2 * r + 1]);
        }
    }

    // One over the sum of weights; zero if no key is attended.
    DEVICE float inverse(int r) const {
        float all = sum[r] + __shfl_xor_sync(~0u, sum[r], 1);
        all += __shfl_xor_sync(~0u, all, 2);
        return greatest[r] == NEVER ? 0.0f : 1.0f / all;
    }
};

struct Computer {
    Memory memory;
    int group;
    int thread;
    u32 items;

    DEVICE int row(int r) const { return group * 64 + thread / 32 * 16 + thread % 32 / 4 + 8 * r; }
    DEVICE int column() const { return thread % 4 * 2; }

    DEVICE u32 await_item(u32 item) const {
        wait(memory.full(item), item / STAGES % 2);
        return memory.stage(item);
    }

    DEVICE void release(u32 barrier) const {
        if (thread % 32 == 0) {
            arrive(barrier);
        }
    }

    DEVICE void begin_scores(float (&scores)[KEYS / 2], u32 queries, u32 keys) const {
        const u64 a = descriptor(queries, PANEL_BYTES), b = descriptor(keys, PANEL_BYTES);
        begin_products();
#pragma unroll
        for (int i = 0; i < WIDTH / 16; ++i) {
            const int at = i / 4 * PANEL_BYTES + i % 4 * 32;
            multiply_scores<KV>(scores, a + (at >> 4), b + (at >> 4), i != 0);
        }
        end_products();
    }

    DEVICE void begin_sums(float (&sums)[WIDTH / 2], const u32 (&weights)[KEYS / 16][4], u32 values) const {
        const u64 b = descriptor(values, PANEL_BYTES);
        begin_products();
#pragma unroll
        for (int i = 0; i < KEYS / 16; ++i) {
            multiply_values<KV>(sums, weights[i], b + (i * 16 * 128 >> 4));
        }
        end_products();
    }

    // Comes after the wait for the next item: across a branch the compiler does not move it before the softmax.
    static DEVICE void finish_sums(float (&sums)[WIDTH / 2]) {
        await_products<0>();
        settle(sums);
    }

    // Negative infinity for what is not attended.
    DEVICE void mask(float (&scores)[KEYS / 2], const Tile& tile, int first_key, const KeyRange (&ranges)[2]) const {
        if (tile.all.start <= first_key && first_key + KEYS <= tile.all.end) {
            return;
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const u32 start = u32(first_key + column() - ranges[r].start), count = u32(ranges[r].end - ranges[r].start);
#pragma unroll
            for (int i = 0; i < KEYS / 8; ++i) {
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    scores[4 * i + 2 * r + e] = start + 8 * i + e < count ? scores[4 * i + 2 * r + e] : NEVER;
                }
            }
        }
    }

    static DEVICE void narrow(const float (&scores)[KEYS / 2], u32 (&weights)[KEYS / 16][4]) {
#pragma unroll
        for (int i = 0; i < KEYS / 16 * 4; ++i) {
            weights[i / 4][i % 4] = pack<KV>(scores[2 * i], scores[2 * i + 1]);
        }
    }

    static DEVICE void rescale(float (&sums)[WIDTH / 2], const float (&factors)[2]) {
#pragma unroll
        for (int i = 0; i < WIDTH / 2; ++i) {
            sums[i] *= factors[i / 2 % 2];
        }
    }

    DEVICE void attend(const Tile& tile, const KeyRange (&ranges)[2], u32 turn, Softmax& softmax, float (&sums)[WIDTH / 2]) {
        float scores[KEYS / 2], factors[2];
        u32 weights[KEYS / 16][4];
#pragma unroll
        for (int i = 0; i < KEYS / 2; ++i) {
            scores[i] = 0.0f;
        }
        const int blocks = tile.blocks();
        const u32 queries = memory.queries() + group * 64 * 128;
        wait(memory.queries_full(), turn % 2);
        begin_scores(scores, queries, await_item(items));
        await_products<0>();
        settle(scores);
        release(memory.empty(items));
        if (blocks == 1) {
            release(memory.queries_empty());
        }
        ++items;
        mask(scores, tile, tile.first_key(0), ranges);
        softmax.apply(scores, factors);
        for (int block = 1; block < blocks; ++block) {
            const u32 keys = await_item(items);
            finish_sums(sums);
            if (block > 1) {
                release(memory.empty(items - 1));
            }
            narrow(scores, weights);
            settle(scores);
            begin_scores(scores, queries, keys);
            rescale(sums, factors);
            begin_sums(sums, weights, await_item(items + 1));
            await_products<1>();
            settle(scores);
            release(memory.empty(items));
            if (block == blocks - 1) {
                release(memory.queries_empty());
            }
            mask(scores, tile, tile.first_key(block), ranges);
            softmax.apply(scores, factors);
            items += 2;
        }
        const u32 values = await_item(items);
        finish_sums(sums);
        if (blocks > 1) {
            release(memory.empty(items - 1));
        }
        narrow(scores, weights);
        rescale(sums, factors);
        begin_sums(sums, weights, values);
        finish_sums(sums);
        release(memory.empty(items));
        ++items;
    }

    // Four lanes of a row give each other their pairs, so that each has eight neighbouring elements of every 32.
    static DEVICE void gather(u32 (&words)[4]) {
        const int lane = threadIdx.x % 4;
#pragma unroll
        for (int bit = 1; bit <= 2; bit *= 2) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if ((i & bit) == 0) {
                    const u32 got = __shfl_xor_sync(~0u, lane & bit ? words[i] : words[i | bit], bit);
                    words[i | bit] = lane & bit ? words[i | bit] : got;
                    words[i] = lane & bit ? got : words[i];
                }
            }
        }
    }

    DEVICE void store(const float (&sums)[WIDTH / 2], const Softmax& softmax, const View& view, const Tile& tile, int queries, Q* y) const {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const float inverse = softmax.inverse(r);
            const int query = tile.first + row(r);
            Q* out = y + row_of(view, tile.batch, tile.head, min(query, queries - 1));
            store_row(sums, r, inverse, out, query < queries);
        }
    }

    DEVICE void store_row(const float (&sums)[WIDTH / 2], int r, float inverse, float* out, bool exists) const {
        const bool odd = thread % 2 != 0, wide = (u64(out) & 15) == 0;
#pragma unroll
        for (int i = 0; i < WIDTH / 16; ++i) {
            float own[2], other[2];
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const float even_block = sums[8 * i + 2 * r + e] * inverse, odd_block = sums[8 * i + 4 + 2 * r + e] * inverse;
                own[e] = odd ? odd_block : even_block;
                other[e] = __shfl_xor_sync(~0u, odd ? even_block : odd_block, 1);
            }
            const float4 four = odd ? make_float4(other[0], other[1], own[0], own[1]) : make_float4(own[0], own[1], other[0], other[1]);
            float* to = out + 16 * i + 8 * (thread % 2) + 4 * (thread % 4 / 2);
            if (exists && wide) {
                *reinterpret_cast<float4*>(to) = four;
            } else if (exists) {
                to[0] = four.x;
                to[1] = four.y;
                to[2] = four.z;
                to[3] = four.w;
            }
        }
    }

    template <typename T>
    DEVICE void store_row(const float (&sums)[WIDTH / 2], int r, float inverse, T* out, bool exists) const {
        const bool wide = (u64(out) & 15) == 0;
#pragma unroll
        for (int i = 0; i < WIDTH / 32; ++i) {
            u32 words[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const int at = (4 * i + j) * 4 + 2 * r;
                words[j] = pack<T>(sums[at] * inverse, sums[at + 1] * inverse);
            }
            gather(words);
            T* to = out + 32 * i + 8 * (thread % 4);
            if (exists && wide) {
                *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
            } else if (exists) {
#pragma unroll
                for (int j = 0; j < 8; ++j) {
                    to[j].bits = (unsigned short)(words[j / 2] >> 16 * (j % 2));
                }
            }
        }
    }
};

DEVICE void compute_all(Memory memory, const Schedule& schedule, Q* y) {
    const ScoreParams& s = schedule.p.score;
    Computer computer = {memory, int(threadIdx.x / 128) - 1, int(threadIdx.x % 128), 0};
    u32 turn = 0;
    for (int round = 0; round < schedule.rounds(); ++round) {
        Tile tile;
        if (!schedule.find(round, tile)) {
            continue;
        }
        Softmax softmax = {{NEVER, NEVER}, {0.0f, 0.0f}, s.scale * 1.44269504f};
        float sums[WIDTH / 2];
#pragma unroll
        for (int i = 0; i < WIDTH / 2; ++i) {
            sums[i] = 0.0f;
        }
        if (tile.blocks() != 0) {
            KeyRange ranges[2];
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const int query = min(tile.first + computer.row(r), int(s.queries) - 1);
                ranges[r] = attended(s, schedule.positions, schedule.lengths, tile.batch, query);
            }
            computer.attend(tile, ranges, turn++, softmax, sums);
        }
        computer.store(sums, softmax, schedule.p.y, tile, int(s.queries), y);
    }
}
