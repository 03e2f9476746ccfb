// A thread has two quarters of a chunk of 32 elements.
template <typename F>
[[kernel]] void dequantize(
    device const uchar* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    constant Params& p [[buffer(2)]],
    uint index [[thread_position_in_grid]])
{
    if (index >= 2 * p.rows * p.chunks) {
        return;
    }
    const uint chunks = uint(p.chunks), at = index / 2, part = index % 2;
    Packed<F> packed;
    packed.template load<Anywhere>(x + at / chunks * p.row_bytes, at % chunks, chunks, part);
    for (uint j = 0; j < 16; ++j) {
        y[32 * ulong(at) + 8 * part + j / 8 * 16 + j % 8] = packed.element(j);
    }
}
