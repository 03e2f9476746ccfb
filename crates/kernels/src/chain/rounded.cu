// Rows rounded to the type of the matrices, normalised first or as they are, in the order in which they are multiplied: blocks of 64 rows, in them panels of 64
// elements, in these eights of rows, and 128 bytes of each, whose sixteens are swizzled. They come after maps of the matrices, if these are wanted. Macro: ELEMENT (f16 or bf16).

extern "C" __global__ void __launch_bounds__(512) rounded_rows(
    const float* x, const void* norm, const void* w0, const void* w1, const void* w2, unsigned char* y, const __grid_constant__ Rounded p) {
    __shared__ float partial[16];
    __shared__ __align__(128) u32 words[32];
    const float* row = x + blockIdx.x * p.k;
    const bool wide = (u64(row) & 15) == 0;
    const u32 step = 4 * blockDim.x;
    const auto load = [&](u32 i) { return wide ? *reinterpret_cast<const float4*>(row + i) : make_float4(row[i], row[i + 1], row[i + 2], row[i + 3]); };
    admit_launches();
    await_launches();
    if (p.height > 0) {
        for (u32 i = 0; i < 3 && blockIdx.x == 0 && threadIdx.x < 32; ++i) {
            if (p.n[i] > 0) {
                make_map(y + 128 * i, i == 0 ? w0 : i == 1 ? w1 : w2, p.k, p.n[i], p.height, words);
            }
        }
        y += MAPS;
    }
    float scale = 1.0f;
    if (p.is_normalised != 0) {
        float sum = 0.0f;
        for (u32 i = 4 * threadIdx.x; i < p.k; i += step) {
            const float4 four = load(i);
            sum = fmaf(four.x, four.x, fmaf(four.y, four.y, fmaf(four.z, four.z, fmaf(four.w, four.w, sum))));
        }
        for (int lanes = 16; lanes > 0; lanes /= 2) {
            sum += __shfl_xor_sync(~0u, sum, lanes);
        }
        if (threadIdx.x % 32 == 0) {
            partial[threadIdx.x / 32] = sum;
        }
        __syncthreads();
        sum = 0.0f;
        for (int warp = 0; warp < 16; ++warp) {
            sum += partial[warp];
        }
        scale = 1.0f / sqrtf(sum / float(p.k) + p.epsilon);
    }
    for (u32 i = 4 * threadIdx.x; i < p.k; i += step) {
        float4 four = load(i);
        four = make_float4(four.x * scale, four.y * scale, four.z * scale, four.w * scale);
        if (norm) {
            four.x *= load_as(norm, p.norm, i);
            four.y *= load_as(norm, p.norm, i + 1);
            four.z *= load_as(norm, p.norm, i + 2);
            four.w *= load_as(norm, p.norm, i + 3);
        }
        const u32 row = blockIdx.x % 64, unit = i / 8 % 8 ^ row % 8;
        const u64 place = blockIdx.x / 64 * p.k * 128 + u64(i / 64 * p.eights + row / 8) * 1024 + row % 8 * 128 + unit * 16 + i % 8 * 2;
        *reinterpret_cast<uint2*>(y + place) = make_uint2(pack<ELEMENT>(four.x, four.y), pack<ELEMENT>(four.z, four.w));
    }
}
