// The products of two pairs of elements, added to a sum.
DEVICE float pair_product(u32 a, u32 b, float sum) {
    const KV x[2] = {{(unsigned short)(a)}, {(unsigned short)(a >> 16)}}, y[2] = {{(unsigned short)(b)}, {(unsigned short)(b >> 16)}};
    return fmaf(widen(x[1]), widen(y[1]), fmaf(widen(x[0]), widen(y[0]), sum));
}

// The dot product of parts of rows.
template <int COUNT>
DEVICE float dot_product(const KV* a, const KV* b) {
    float product = 0.0f;
    if (((u64(a) | u64(b)) & 15) == 0) {
        uint4 x[COUNT / 8], y[COUNT / 8];
#pragma unroll
        for (int i = 0; i < COUNT / 8; ++i) {
            x[i] = reinterpret_cast<const uint4*>(a)[i];
            y[i] = reinterpret_cast<const uint4*>(b)[i];
        }
#pragma unroll
        for (int i = 0; i < COUNT / 8; ++i) {
            product = pair_product(x[i].x, y[i].x, product);
            product = pair_product(x[i].y, y[i].y, product);
            product = pair_product(x[i].z, y[i].z, product);
            product = pair_product(x[i].w, y[i].w, product);
        }
        return product;
    }
    for (int i = 0; i < COUNT; ++i) {
        product = fmaf(widen(a[i]), widen(b[i]), product);
    }
    return product;
}
