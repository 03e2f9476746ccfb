// How a token's rows are rotated by its position, as rope.metal does, to the bit.

struct Rotation {
    float cosines[WIDTH / 2];
    float sines[WIDTH / 2];
};

DEVICE void share_rotation(Rotation& rotation, const TokenParams& p, int position, const float* frequencies) {
    for (int i = threadIdx.x; i < p.half_dim; i += blockDim.x) {
        const float angle = float(position) * frequencies[i];
        rotation.cosines[i] = strict::cos(angle);
        rotation.sines[i] = strict::sin(angle);
    }
}

// An element of a row and the one that it rotates with: itself, where it does not rotate. They are loaded before any is rotated, all at once.
struct Pair {
    float own;
    float other;
};

DEVICE Pair load_pair(const TokenParams& p, const Q* row, int e) {
    const int half = p.half_dim, other = e >= 2 * half ? e : p.interleaved ? e ^ 1 : e < half ? e + half : e - half;
    return {widen(row[e]), widen(row[other])};
}

DEVICE float rotated(const Rotation& rotation, const TokenParams& p, Pair pair, int e) {
    const int half = p.half_dim;
    if (e >= 2 * half) {
        return pair.own;
    }
    const int at = p.interleaved ? e / 2 : e < half ? e : e - half;
    const bool is_first = p.interleaved ? e % 2 == 0 : e < half;
    const float product = pair.other * rotation.sines[at];
    return pair.own * rotation.cosines[at] + (is_first ? -product : product);
}

// Eight elements that begin on a multiple of sixteen bytes.
DEVICE void load_eight(const float* from, float (&to)[8]) {
    const float4 low = *reinterpret_cast<const float4*>(from), high = *reinterpret_cast<const float4*>(from + 4);
    to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w, to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
}
template <typename T>
DEVICE void load_eight(const T* from, float (&to)[8]) {
    const uint4 words = *reinterpret_cast<const uint4*>(from);
    const u32 all[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        to[i] = widen(T{(unsigned short)(all[i / 2] >> 16 * (i % 2))});
    }
}

// Eight elements from `first` on, a multiple of eight.
struct Eight {
    Pair pairs[8];

    DEVICE void load(const TokenParams& p, const Q* row, int first) {
        const int half = p.half_dim;
        if ((u64(row) & 15) != 0 || half % 8 != 0 || p.interleaved) {
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                pairs[i] = load_pair(p, row, first + i);
            }
            return;
        }
        float own[8], other[8];
        load_eight(row + first, own);
        load_eight(row + (first >= 2 * half ? first : first < half ? first + half : first - half), other);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            pairs[i] = {own[i], other[i]};
        }
    }

    DEVICE void rotate(const Rotation& rotation, const TokenParams& p, int first, u32 (&words)[4]) const {
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
            words[i / 2] = pack<KV>(rotated(rotation, p, pairs[i], first + i), rotated(rotation, p, pairs[i + 1], first + i + 1));
        }
    }
};

// An element of the newest key, with the one that it rotates with, and of its value.
struct Newest {
    Pair key;
    float value;

    DEVICE void load(const TokenParams& p, int token, int kv_head, const Q* keys, const Q* values, int e) {
        key = load_pair(p, keys + row_of(p.new_key, 0, kv_head, token), e);
        value = widen(values[row_of(p.new_value, 0, kv_head, token) + e]);
    }
};
