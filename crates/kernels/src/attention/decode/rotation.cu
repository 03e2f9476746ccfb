// How a token's rows are rotated by its position, as rope.metal does, to the bit.
//
// Between the end of the launches ahead and a token's result each instruction counts: where rows are is computed before, and eight neighbours of a row that are
// rotated with eight other neighbours are loaded and rotated as such.

struct Rotation {
    float cosines[WIDTH / 2];
    float sines[WIDTH / 2];
};

// The frequency of this thread's pair, if it has one.
DEVICE float own_frequency(const TokenParams& p, const float* frequencies) { return threadIdx.x < p.half_dim ? frequencies[threadIdx.x] : 0.0f; }

DEVICE void share_rotation(Rotation& rotation, const TokenParams& p, int position, float frequency) {
    if (threadIdx.x < p.half_dim) {
        const float angle = float(position) * frequency;
        rotation.cosines[threadIdx.x] = strict::cos(angle);
        rotation.sines[threadIdx.x] = strict::sin(angle);
    }
}

// The element that an element rotates with: itself, where it does not rotate.
DEVICE int partner(const TokenParams& p, int e) {
    const int half = p.half_dim;
    return e >= 2 * half ? e : p.interleaved ? e ^ 1 : e < half ? e + half : e - half;
}

DEVICE float rotated(const Rotation& rotation, const TokenParams& p, float own, float other, int e) {
    const int half = p.half_dim;
    if (e >= 2 * half) {
        return own;
    }
    const int at = p.interleaved ? e / 2 : e < half ? e : e - half;
    const bool is_first = p.interleaved ? e % 2 == 0 : e < half;
    const float product = other * rotation.sines[at];
    return own * rotation.cosines[at] + (is_first ? -product : product);
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

// Eight elements of a row from `first` on, a multiple of eight, and those that they rotate with.
struct Eight {
    const Q* row;
    int first;
    // Where the others begin that these rotate with, if they are eight neighbours as well.
    int second;
    bool are_neighbours;
    float own[8];
    float others[8];

    DEVICE void place(const TokenParams& p, const Q* of_row, int of_first) {
        row = of_row;
        first = of_first;
        second = partner(p, first);
        are_neighbours = (u64(row) & 15) == 0 && p.half_dim % 8 == 0 && !p.interleaved;
    }

    DEVICE void load(const TokenParams& p) {
        if (are_neighbours) {
            load_eight(row + first, own);
            load_eight(row + second, others);
        } else {
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                own[i] = widen(row[first + i]);
                others[i] = widen(row[partner(p, first + i)]);
            }
        }
    }

    DEVICE void rotate(const Rotation& rotation, const TokenParams& p, u32 (&words)[4]) const {
        float y[8];
        if (are_neighbours && second != first) {
            float cosines[8], sines[8];
            load_eight(rotation.cosines + min(first, second), cosines);
            load_eight(rotation.sines + min(first, second), sines);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const float product = others[i] * sines[i];
                y[i] = own[i] * cosines[i] + (first < second ? -product : product);
            }
        } else {
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                y[i] = rotated(rotation, p, own[i], others[i], first + i);
            }
        }
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
            words[i / 2] = pack<KV>(y[i], y[i + 1]);
        }
    }
};

// An element of the newest key, with the one that it rotates with, and of its value.
struct Newest {
    const Q* key_row;
    const Q* own_value;
    int e;
    float own;
    float other;
    float value;

    DEVICE void place(const TokenParams& p, int token, int kv_head, const Q* keys, const Q* values, int of_e) {
        e = of_e;
        key_row = keys + row_of(p.new_key, 0, kv_head, token);
        own_value = values + row_of(p.new_value, 0, kv_head, token) + e;
    }

    DEVICE void load(const TokenParams& p) {
        own = widen(key_row[e]);
        other = widen(key_row[partner(p, e)]);
        value = widen(*own_value);
    }

    DEVICE float key(const Rotation& rotation, const TokenParams& p) const { return rotated(rotation, p, own, other, e); }
};
