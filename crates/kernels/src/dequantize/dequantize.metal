// A signed byte as a float: that of 2^23 and the byte, without its sign, has a last place of one. Conversions are slow on some GPUs.
inline float float_of(uint byte) {
    return as_type<float>(0x4b000000u | (byte ^ 0x80u)) - 8388736.0f;
}

template <typename Place, typename F>
inline void decode_quarter(PackedPlace<F> place, uint quarter, thread float (&values)[8]) {
    const Scales scales = place.template scales<Place>();
    const float scale = scales.scale[quarter / 2], offset = scales.offset[quarter / 2];
    for (uint i = 0; i < 2; ++i) {
        const uint integers = place.template integers<Place>(2 * quarter + i);
        for (uint j = 0; j < 4; ++j) {
            const float scaled = scale * float_of(integers >> (8 * j) & 0xffu);
            values[4 * i + j] = F::OFFSETS ? scaled + offset : scaled;
        }
    }
}

// A thread has a quarter of a chunk: eight elements.
template <typename F, typename T>
[[kernel]] void dequantize(
    device const uchar* x [[buffer(0)]],
    device T* y [[buffer(1)]],
    constant Params& p [[buffer(2)]],
    uint index [[thread_position_in_grid]])
{
    const uint quarter = index % 4, chunks = uint(p.chunks), row = index / 4 / chunks;
    if (row >= p.rows) {
        return;
    }
    const PackedPlace<F> place(x + row * p.row_bytes, index / 4 % chunks, chunks);
    float values[8];
    if (is_wide(x)) {
        decode_quarter<Aligned>(place, quarter, values);
    } else {
        decode_quarter<Anywhere>(place, quarter, values);
    }
    RowWriter<T>(y, 1, 32 * p.rows * chunks).store(8 * ulong(index), values);
}
