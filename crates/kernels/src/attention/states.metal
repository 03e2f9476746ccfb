// The softmax of one block of keys after the other.

constant constexpr uint BLOCK = 256;

// The greater; NaN if either is.
struct Greatest {
    typedef float A;
    static float apply(float a, float b) {
        const float larger = a > b ? a : b;
        return isnan(a) ? a : larger;
    }
};

// The greatest score and the sum of weights over some blocks.
struct State {
    float greatest;
    float sum;
};

// What the sums before and those of the next block are multiplied by.
struct Factors {
    float before;
    float next;

    static Factors of(float greatest, float next_greatest) {
        const float both = Greatest::apply(greatest, next_greatest);
        const bool none = next_greatest == -INFINITY, first = greatest == -INFINITY;
        const float before = none ? 1.0f : first ? 0.0f : strict::exp_nonpositive(greatest - both);
        return {before, none ? 0.0f : first ? 1.0f : strict::exp_nonpositive(next_greatest - both)};
    }

    float combine(float sum, float next_sum) const { return fma(sum, before, next_sum * next); }
};

// Blocks that a thread combines by itself.
constant constexpr uint FEW = 8;

// An element of a row's result, of the few blocks from `first` up to `end`: all that those left is on its way at once.
template <typename L>
inline float combine_few(thread const L& left, uint first, uint end) {
    float sums[FEW];
    State states[FEW];
#pragma unroll
    for (uint i = 0; i < FEW; ++i) {
        if (first + i < end) {
            sums[i] = left.sum(first + i);
            states[i] = left.state(first + i);
        }
    }
    State state = {-INFINITY, 0.0f};
    float total = 0.0f;
#pragma unroll
    for (uint i = 0; i < FEW; ++i) {
        if (first + i < end) {
            const Factors f = Factors::of(state.greatest, states[i].greatest);
            state = {Greatest::apply(state.greatest, states[i].greatest), f.combine(state.sum, states[i].sum)};
            total = f.combine(total, sums[i]);
        }
    }
    return state.greatest == -INFINITY ? 0.0f : total * (1.0f / state.sum);
}
