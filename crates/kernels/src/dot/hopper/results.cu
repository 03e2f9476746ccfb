// What becomes of sums, after Results. Macro: RESULT (float, f16 or bf16).

// As the host writes them.
constexpr u32 TYPE_F16 = 1;
constexpr u32 TYPE_BF16 = 2;
constexpr u32 NO_BIAS = ~0u;

DEVICE float load_bias(const void* bias, u32 type, u64 at) {
    switch (type) {
        case TYPE_F16: return widen(static_cast<const f16*>(bias)[at]);
        case TYPE_BF16: return widen(static_cast<const bf16*>(bias)[at]);
        default: return static_cast<const float*>(bias)[at];
    }
}

DEVICE float finish(float sum, const Results& p, const void* bias, u64 column) {
    const float scaled = sum * p.alpha;
    return p.bias == NO_BIAS ? scaled : scaled + load_bias(bias, p.bias, column);
}

DEVICE void store_two(float* to, float x, float y) { *reinterpret_cast<float2*>(to) = make_float2(x, y); }
template <typename T>
DEVICE void store_two(T* to, float x, float y) {
    *reinterpret_cast<u32*>(to) = pack<T>(x, y);
}
