// How a token's rows are rotated by its position, as rope.metal does, to the bit.

struct Rotation {
    float cosines[WIDTH / 2];
    float sines[WIDTH / 2];
};

DEVICE void share_rotation(Rotation& rotation, const DecodeParams& p, int position, const float* frequencies) {
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

DEVICE Pair load_pair(const DecodeParams& p, const Q* row, int e) {
    const int half = p.half_dim, other = e >= 2 * half ? e : p.interleaved ? e ^ 1 : e < half ? e + half : e - half;
    return {widen(row[e]), widen(row[other])};
}

DEVICE float rotated(const Rotation& rotation, const DecodeParams& p, Pair pair, int e) {
    const int half = p.half_dim;
    if (e >= 2 * half) {
        return pair.own;
    }
    const int at = p.interleaved ? e / 2 : e < half ? e : e - half;
    const bool is_first = p.interleaved ? e % 2 == 0 : e < half;
    const float product = pair.other * rotation.sines[at];
    return pair.own * rotation.cosines[at] + (is_first ? -product : product);
}

// Eight elements from `first` on, a multiple of eight.
struct Eight {
    Pair pairs[8];

    DEVICE void load(const DecodeParams& p, const Q* row, int first) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            pairs[i] = load_pair(p, row, first + i);
        }
    }

    DEVICE void rotate(const Rotation& rotation, const DecodeParams& p, int first, u32 (&words)[4]) const {
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
            words[i / 2] = pack<KV>(rotated(rotation, p, pairs[i], first + i), rotated(rotation, p, pairs[i + 1], first + i + 1));
        }
    }
};
