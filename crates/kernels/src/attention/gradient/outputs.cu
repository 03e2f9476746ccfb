// Parts of rows as pairs of elements, and the products of outputs with their gradients.

template <int COUNT>
DEVICE void load_pairs(const KV* from, u32 (&pairs)[COUNT / 2]) {
    if ((u64(from) & 15) == 0) {
#pragma unroll
        for (int i = 0; i < COUNT / 8; ++i) {
            const uint4 four = reinterpret_cast<const uint4*>(from)[i];
            pairs[4 * i] = four.x;
            pairs[4 * i + 1] = four.y;
            pairs[4 * i + 2] = four.z;
            pairs[4 * i + 3] = four.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < COUNT / 2; ++i) {
            pairs[i] = u32(from[2 * i].bits) | u32(from[2 * i + 1].bits) << 16;
        }
    }
}

DEVICE float low(u32 pair) { return widen(KV{(unsigned short)(pair)}); }
DEVICE float high(u32 pair) { return widen(KV{(unsigned short)(pair >> 16)}); }

// The dot product of parts of rows.
template <int COUNT>
DEVICE float dot_product(const KV* a, const KV* b) {
    u32 x[COUNT / 2], y[COUNT / 2];
    load_pairs<COUNT>(a, x);
    load_pairs<COUNT>(b, y);
    float product = 0.0f;
#pragma unroll
    for (int i = 0; i < COUNT / 2; ++i) {
        product = fmaf(high(x[i]), high(y[i]), fmaf(low(x[i]), low(y[i]), product));
    }
    return product;
}
