// The warpgroups that compute: 64 rows of the thread block's tile each.

// Thread t of a warpgroup has rows t / 32 · 16 + t % 32 / 4 (and 8 more) and of each eight columns two from t % 4 · 2 on.
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

    // Dot products of the warpgroup's rows in an own tile with the rows of an item.
    template <Before BEFORE = NONE>
    DEVICE void begin_scores(float (&scores)[BLOCK / 2], int own, u32 item) const {
        const u64 a = descriptor(memory.own(own) + group * 64 * 128, 128 * ROWS), b = descriptor(item, 128 * BLOCK);
        begin_products();
        multiply_scores<KV, BEFORE>(scores, a, b);
#pragma unroll
        for (int i = 1; i < WIDTH / 16; ++i) {
            multiply_scores<KV, ADDED>(scores, a + (i / 4 * 128 * ROWS + i % 4 * 32 >> 4), b + (i / 4 * 128 * BLOCK + i % 4 * 32 >> 4));
        }
        end_products();
    }

    // Adds the rows of an item by weights.
    static DEVICE void begin_sums(float (&sums)[WIDTH / 2], const u32 (&weights)[BLOCK / 16][4], u32 item) {
        const u64 b = descriptor(item, 128 * BLOCK);
        begin_products();
#pragma unroll
        for (int i = 0; i < BLOCK / 16; ++i) {
            multiply_values<KV>(sums, weights[i], b + (i * 16 * 128 >> 4));
        }
        end_products();
    }

    static DEVICE void narrow(const float (&scores)[BLOCK / 2], u32 (&weights)[BLOCK / 16][4]) {
#pragma unroll
        for (int i = 0; i < BLOCK / 16 * 4; ++i) {
            weights[i / 4][i % 4] = pack<KV>(scores[2 * i], scores[2 * i + 1]);
        }
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

    DEVICE void store_row(const float (&sums)[WIDTH / 2], int r, float factor, float* out, bool exists) const {
        const bool odd = thread % 2 != 0, wide = (u64(out) & 15) == 0;
#pragma unroll
        for (int i = 0; i < WIDTH / 16; ++i) {
            float own[2], other[2];
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const float even_block = sums[8 * i + 2 * r + e] * factor, odd_block = sums[8 * i + 4 + 2 * r + e] * factor;
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
    DEVICE void store_row(const float (&sums)[WIDTH / 2], int r, float factor, T* out, bool exists) const {
        const bool wide = (u64(out) & 15) == 0;
#pragma unroll
        for (int i = 0; i < WIDTH / 32; ++i) {
            u32 words[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const int at = (4 * i + j) * 4 + 2 * r;
                words[j] = pack<T>(sums[at] * factor, sums[at + 1] * factor);
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

// Negative infinity for what is not attended; the rows attend `all` keys.
DEVICE void mask(float (&scores)[BLOCK / 2], KeyRange all, int first_key, int column, const KeyRange (&ranges)[2]) {
    if (all.start <= first_key && first_key + BLOCK <= all.end) {
        return;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const u32 start = u32(first_key + column - ranges[r].start), count = u32(ranges[r].end - ranges[r].start);
#pragma unroll
        for (int i = 0; i < BLOCK / 8; ++i) {
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                scores[4 * i + 2 * r + e] = start + 8 * i + e < count ? scores[4 * i + 2 * r + e] : NEVER;
            }
        }
    }
}
