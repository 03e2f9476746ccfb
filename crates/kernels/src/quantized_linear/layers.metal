// The layers of a launch.

typedef DELIVERING(Params) LaunchParams;

constant constexpr uint LINEAR_SIMDGROUPS = 8;
// Bits of Params::present, after those of the biases.
constant constexpr uint WEIGHTED = 8;
constant constexpr uint RESIDUAL = 16;

// The weight, the bias and the output of a layer.
template <typename T, typename C>
struct Layer {
    device const uchar* weight;
    device const C* bias;
    device T* y;
    uint n;

    // A packed row; the last stands for those after it.
    device const uchar* row(uint column, constant Params& p) const { return weight + min(column, n - 1) * p.row_bytes; }

    float biased(bool has_bias, uint column, float sum) const { return has_bias ? sum + widen(bias[column]) : sum; }
};

template <typename T, typename C>
struct Layers {
    Layer<T, C> first;
    Layer<T, C> second;
    Layer<T, C> third;
};
