// What becomes of sums, after Results. Macro: RESULT (float, f16 or bf16).

constexpr u32 NO_BIAS = ~0u;

DEVICE float finish(float sum, const Results& p, const void* bias, u64 column) {
    const float scaled = sum * p.alpha;
    return p.bias == NO_BIAS ? scaled : scaled + load_as(bias, p.bias, column);
}

DEVICE void store_two(float* to, float x, float y) { *reinterpret_cast<float2*>(to) = make_float2(x, y); }
template <typename T>
DEVICE void store_two(T* to, float x, float y) {
    *reinterpret_cast<u32*>(to) = pack<T>(x, y);
}
