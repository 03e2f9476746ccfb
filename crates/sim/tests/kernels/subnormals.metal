#include <metal_stdlib>
using namespace metal;

// One row of results for each pair of numbers.
kernel void numbers(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]], device float* out [[buffer(2)]],
                    uint i [[thread_position_in_grid]]) {
    const float x = a[i], y = b[i];
    device float* row = out + 32 * i;
    row[0] = x + y;
    row[1] = x - y;
    row[2] = x * y;
    row[3] = x / y;
    row[4] = fma(x, y, x);
    row[5] = sqrt(x);
    row[6] = float(x < y);
    row[7] = float(x == y);
    row[8] = float(bool(x));
    row[9] = min(x, y);
    row[10] = max(x, y);
    row[11] = fmin(x, y);
    row[12] = clamp(x, y, 1.0f);
    row[13] = sign(x);
    row[14] = ceil(x);
    row[15] = ldexp(x, 1);
    row[16] = simd_sum(i == 0 ? 0.0f : 0.0f * x);
    // What moves or changes bits.
    row[17] = x;
    row[18] = -x;
    row[19] = fabs(x);
    row[20] = copysign(x, y);
    row[21] = select(x, y, false);
    row[22] = as_type<float>(as_type<uint>(x) ^ 1u);
    // Through half, whose subnormals are numbers like others.
    const half h = half(x * 0x1p100f);
    row[23] = float(h + h);
    row[24] = float(half(0x1p-24h));
    row[25] = float(h < half(0x1p-24h));
    row[26] = float(int(x));
    row[27] = float(isnormal(x));
    row[28] = exp(x);
    row[29] = x + as_type<float>(0x00800000u);
    row[30] = as_type<float>(0x00ffffffu) * 0.5f * x;
    row[31] = float2(x, y).x + float2(y, x).x;
}

kernel void bfloats(device const bfloat* a [[buffer(0)]], device const bfloat* b [[buffer(1)]], device float* out [[buffer(2)]],
                    uint i [[thread_position_in_grid]]) {
    const bfloat x = a[i], y = b[i];
    device float* row = out + 8 * i;
    row[0] = float(x);
    row[1] = float(x + y);
    row[2] = float(x * y);
    row[3] = float(x < y);
    row[4] = float(bool(x));
    row[5] = as_type<float>(uint(as_type<ushort>(bfloat(as_type<float>(uint(as_type<ushort>(x)) << 16)))) << 16);
    row[6] = as_type<float>(uint(as_type<ushort>(x)) << 16);
    row[7] = as_type<float>(uint(as_type<ushort>(-x)) << 16);
}
