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
    const Scales scales = place.template scales<Anywhere>();
    const float scale = scales.scale[quarter / 2], offset = scales.offset[quarter / 2];
    float values[8];
    for (uint i = 0; i < 2; ++i) {
        const uint integers = place.template integers<Anywhere>(2 * quarter + i);
        for (uint j = 0; j < 4; ++j) {
            const float scaled = scale * float(int(as_type<char>(uchar(integers >> (8 * j)))));
            values[4 * i + j] = F::OFFSETS ? scaled + offset : scaled;
        }
    }
    RowWriter<T>(y, 1, 32 * p.rows * chunks).store(8 * ulong(index), values);
}
