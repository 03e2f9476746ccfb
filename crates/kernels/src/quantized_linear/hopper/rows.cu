// Makes integers of rows of x, to the bit as integers.metal does. A warp has a chunk of eight rows, a lane eight elements.

DEVICE float scale_of(u32 largest, float& inverse) {
    const float exact = __fdiv_rn(__uint_as_float(largest), 32767.0f);
    const bool is_normal = largest < 0x7f800000u && exact >= 0x1p-126f;
    inverse = is_normal ? __fdiv_rn(1.0f, exact) : 0.0f;
    return largest >= 0x7f800000u ? __int_as_float(0x7fffffff) : is_normal ? exact : 0.0f;
}

extern "C" __global__ void __launch_bounds__(256) integer_rows(const float* x, unsigned char* records, const __grid_constant__ IntegerRows p) {
    const u32 lane = threadIdx.x % 32, quarter = lane % 4, chunk = blockIdx.y * 8 + threadIdx.x / 32, within = blockIdx.x % (ROWS / 8) * 8 + lane / 4;
    const u64 tile = blockIdx.x / (ROWS / 8), row = tile * ROWS + within;
    await_launches();
    if (chunk >= p.chunks) {
        return;
    }
    const float* from = x + (row * p.chunks + chunk) * CHUNK + 8 * quarter;
    float values[8] = {};
    if (row >= p.m) {
    } else if ((u64(x) & 15) == 0) {
        *reinterpret_cast<float4*>(values) = *reinterpret_cast<const float4*>(from);
        *reinterpret_cast<float4*>(values + 4) = *reinterpret_cast<const float4*>(from + 4);
    } else {
        for (u32 i = 0; i < 8; ++i) {
            values[i] = from[i];
        }
    }
    u32 largest = 0;
    for (u32 i = 0; i < 8; ++i) {
        largest = max(largest, __float_as_uint(values[i]) & 0x7fffffffu);
    }
    largest = max(largest, __shfl_xor_sync(~0u, largest, 1));
    largest = max(largest, __shfl_xor_sync(~0u, largest, 2));
    float inverse;
    const float scale = scale_of(largest, inverse);
    float upper[8], lower[8];
    int total = 0;
    for (u32 i = 0; i < 8; ++i) {
        // The nearest integer, ties to even: the last bit of 12582912 is a one.
        const int integer = __float_as_int(__fadd_rn(__fmul_rn(values[i], inverse), 12582912.0f)) - 0x4b400000;
        lower[i] = float(integer & 0xff);
        upper[i] = float(integer - (integer & 0xff));
        total += integer;
    }
    const int half = total + __shfl_xor_sync(~0u, total, 1), other = __shfl_xor_sync(~0u, half, 2);
    unsigned char* const record = records + (tile * p.chunks + chunk) * Record::BYTES;
    unsigned char* const to = record + quarter / 2 * 2 * Record::PIECE + within * 16 + quarter % 2 * 8;
    for (u32 piece = 0; piece < 2; ++piece) {
        const u32 i = 2 * piece;
        *reinterpret_cast<uint2*>(to + piece * Record::PIECE) = make_uint2(pack<f16>(upper[i], upper[i + 1]), pack<f16>(upper[i + 4], upper[i + 5]));
        *reinterpret_cast<uint2*>(to + piece * Record::PIECE + Record::PLANE) = make_uint2(pack<f16>(lower[i], lower[i + 1]), pack<f16>(lower[i + 4], lower[i + 5]));
    }
    if (quarter == 0) {
        float* const numbers = reinterpret_cast<float*>(record + Record::NUMBERS) + within / 2 * 4 + within % 2;
        float* const halves = reinterpret_cast<float*>(record + Record::HALVES) + within / 2 * 4 + within % 2;
        numbers[0] = scale;
        numbers[2] = float(half + other);
        halves[0] = float(half);
        halves[2] = float(other);
    }
}
