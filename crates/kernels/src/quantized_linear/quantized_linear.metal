// Rows of x as 16-bit integers, and their dot products with rows of quantised weights: exact within 32 elements, and summed in f32 across them.

// The 32 elements of a simdgroup as multiples of a scale: the integers, and by the first lane the scale.
template <typename T>
[[kernel]] void quantized_rows(
    device const T* x [[buffer(0)]],
    device short* q [[buffer(1)]],
    device float* scales [[buffer(2)]],
    constant Params& params [[buffer(3)]],
    uint group [[threadgroup_position_in_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]])
{
    const ulong chunk = ulong(group) * SIMDGROUPS + simdgroup;
    if (chunk >= params.m * params.chunks) {
        return;
    }
    const float value = widen(x[32 * chunk + lane]);
    // Magnitudes sort as their bits do, infinity and NaN last.
    const uint largest = simd_max(as_type<uint>(value) & 0x7fffffffu);
    const float exact = as_type<float>(largest) / 32767.0f;
    const bool is_finite = largest < 0x7f800000u, is_normal = is_finite && exact >= 0x1p-126f;
    const float scale = is_normal ? exact : is_finite ? 0.0f : NAN;
    q[32 * chunk + lane] = is_normal ? short(rint(value * (1.0f / exact))) : short(0);
    if (lane == 0) {
        scales[chunk] = scale;
    }
}

// What a chunk of weights adds to the sum of a row.
template <typename F>
inline float add_chunk(thread const Chunk& chunk, device const short* q, float scale, float sum) {
    int products[2] = {0, 0}, totals[2] = {0, 0};
    for (uint i = 0; i < 8; ++i) {
        const short4 values = reinterpret_cast<device const short4*>(q)[i];
        const uint group = 4 * i / F::GROUP;
        for (uint j = 0; j < 4; ++j) {
            products[group] += int(chunk.q[4 * i + j]) * int(values[j]);
            totals[group] += int(values[j]);
        }
    }
    for (uint group = 0; group < 32 / F::GROUP; ++group) {
        sum = fma(chunk.scale[group] * scale, float(products[group]), sum);
        if (F::OFFSETS) {
            sum = fma(chunk.offset[group] * scale, float(totals[group]), sum);
        }
    }
    return sum;
}

// A simdgroup for each column of y and ROWS rows; lane l has the chunks c = l (mod 32), in ascending order.
template <typename F, typename T, uint ROWS>
[[kernel]] void quantized_linear(
    device const short* q [[buffer(0)]],
    device const float* scales [[buffer(1)]],
    device const uchar* weight [[buffer(2)]],
    device T* y [[buffer(3)]],
    constant Params& params [[buffer(4)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]])
{
    const ulong column = ulong(group.x) * SIMDGROUPS + simdgroup, first = ulong(group.y) * ROWS;
    if (column >= params.n) {
        return;
    }
    device const uchar* row = weight + column * params.row_bytes;
    float sums[ROWS];
    for (uint r = 0; r < ROWS; ++r) {
        sums[r] = 0.0f;
    }
    constexpr uint CHUNKS = F::ELEMENTS / 32;
    for (ulong c = lane; c < params.chunks; c += 32) {
        Chunk chunk;
        F::load(row + c / CHUNKS * F::BYTES, uint(c % CHUNKS), chunk);
        for (uint r = 0; r < ROWS; ++r) {
            if (first + r < params.m) {
                const ulong at = (first + r) * params.chunks + c;
                sums[r] = add_chunk<F>(chunk, q + 32 * at, scales[at], sums[r]);
            }
        }
    }
    for (uint r = 0; r < ROWS; ++r) {
        float sum = sums[r];
        for (ushort mask = 16; mask > 0; mask /= 2) {
            sum += simd_shuffle_xor(sum, mask);
        }
        if (lane == 0 && first + r < params.m) {
            y[(first + r) * params.n + column] = narrow<T>(sum);
        }
    }
}
