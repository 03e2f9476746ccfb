// Functions of one tensor, element by element: a function object computes in f32, or in an integer type, which wraps.

template <typename Op, typename T>
[[kernel]] void unary(
    device const T* x [[buffer(0)]],
    device T* y [[buffer(1)]],
    constant UnaryParams& params [[buffer(2)]],
    uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]])
{
    const ulong first = first_element(group, index);
    if (first >= params.space.count) {
        return;
    }
    const Run run(params.space, first);
    Elements<T> block = load(x, params.space, params.x, run);
    for (uint i = 0; i < SLOTS; ++i) {
        block.at[i] = pack<T>(Op::apply(unpack<T>(block.at[i]), params.alpha));
    }
    store(y, run, block);
}

// The same for a tensor without gaps: a word of BYTES bytes for each thread.
template <typename Op, typename T, uint BYTES>
[[kernel]] void unary_dense(
    device const T* x [[buffer(0)]],
    device T* y [[buffer(1)]],
    constant Dense& dense [[buffer(2)]],
    uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]])
{
    const ulong first = (ulong(group) * THREADS + index) * Word<T, BYTES>::COUNT;
    if (first >= dense.count) {
        return;
    }
    Word<T, BYTES> word = load_word<BYTES>(x + (dense.origins[0] + first), dense.count - first);
    for (uint i = 0; i < Word<T, BYTES>::COUNT; ++i) {
        word.at[i] = pack<T>(Op::apply(unpack<T>(word.at[i]), dense.alpha));
    }
    store_word(y + first, dense.count - first, word);
}

template <typename T>
inline T wrapping_negate(T x) {
    return T(0ul - ulong(x));
}

struct Abs {
    static float apply(float x, float) { return fabs(x); }

    template <typename T>
    static T apply(T x, float) { return x < T(0) ? wrapping_negate(x) : x; }
};

struct Neg {
    static float apply(float x, float) { return -x; }

    template <typename T>
    static T apply(T x, float) { return wrapping_negate(x); }
};

struct Sign {
    static float apply(float x, float) { return x > 0.0f ? 1.0f : (x < 0.0f ? -1.0f : x); }

    template <typename T>
    static T apply(T x, float) { return x < T(0) ? T(-1) : T(x > T(0)); }
};

struct Square {
    static float apply(float x, float) { return x * x; }

    template <typename T>
    static T apply(T x, float) { return T(ulong(x) * ulong(x)); }
};

struct Relu {
    template <typename T>
    static T apply(T x, float) { return x < T(0) ? T(0) : x; }
};

struct Sqrt {
    static float apply(float x, float) { return metal::sqrt(x); }
};

struct Rsqrt {
    static float apply(float x, float) { return strict::rsqrt(x); }
};

struct Reciprocal {
    static float apply(float x, float) { return 1.0f / x; }
};

struct Floor {
    static float apply(float x, float) { return metal::floor(x); }
};

struct Ceil {
    static float apply(float x, float) { return metal::ceil(x); }
};

struct Round {
    static float apply(float x, float) { return metal::rint(x); }
};

struct Exp {
    static float apply(float x, float) { return strict::exp(x); }
};

struct Log {
    static float apply(float x, float) { return strict::log(x); }
};

struct Sin {
    static float apply(float x, float) { return strict::sin(x); }
};

struct Cos {
    static float apply(float x, float) { return strict::cos(x); }
};

struct Tanh {
    static float apply(float x, float) { return strict::tanh(x); }
};

struct Erf {
    static float apply(float x, float) { return strict::erf(x); }
};

struct Sigmoid {
    static float apply(float x, float) { return strict::sigmoid(x); }
};

struct Softplus {
    static float apply(float x, float) { return strict::softplus(x); }
};

struct Silu {
    static float apply(float x, float) { return strict::silu(x); }
};

struct HardSwish {
    static float apply(float x, float) { return x * strict::clamp(x / 6.0f + 0.5f, 0.0f, 1.0f); }
};

struct Gelu {
    static float apply(float x, float) { return strict::gelu_erf(x); }
};

struct GeluTanh {
    static float apply(float x, float) { return strict::gelu_tanh(x); }
};

struct LeakyRelu {
    static float apply(float x, float alpha) { return x < 0.0f ? alpha * x : x; }
};

// e^x - 1 = 2t / (1 - t) with t = tanh(x / 2) cancels nowhere.
struct Elu {
    static float apply(float x, float alpha) {
        const float t = strict::tanh(0.5f * x);
        return x < 0.0f ? alpha * ((t + t) / (1.0f - t)) : x;
    }
};
