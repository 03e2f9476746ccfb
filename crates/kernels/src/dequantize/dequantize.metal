// A thread has a chunk of 32 elements.
template <typename F>
[[kernel]] void dequantize(
    device const uchar* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    constant Params& p [[buffer(2)]],
    uint index [[thread_position_in_grid]])
{
    if (index >= p.rows * p.chunks) {
        return;
    }
    const uint chunks = uint(p.chunks), row = index / chunks, chunk = index % chunks;
    Packed<F> packed;
    packed.template load<Anywhere>(PackedPlace<F>(x + row * p.row_bytes, chunk, chunks), 0);
    for (uint j = 0; j < 32; ++j) {
        y[32 * ulong(index) + j] = packed.element(j);
    }
}
