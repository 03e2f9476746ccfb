// The softmax of one block of keys after the other, in base 2: a row's greatest score and the sum of its weights. Every operation is written out: one kernel
// or another, the bits are the same.

struct State {
    float base;
    float sum;
};

// What the sums before and those of the next block are multiplied by.
struct Factors {
    float before;
    float next;

    DEVICE Factors(float base, float next_base) {
        const float both = fmaxf(base, next_base), shift = both == NEVER ? 0.0f : both;
        before = exp2_approximate(__fsub_rn(base, shift));
        next = exp2_approximate(__fsub_rn(next_base, shift));
    }

    DEVICE float combine(float sum, float next_sum) const { return __fmaf_rn(sum, before, __fmul_rn(next_sum, next)); }
};

DEVICE Factors add(State& state, const State& next) {
    const Factors factors(state.base, next.base);
    state = {fmaxf(state.base, next.base), factors.combine(state.sum, next.sum)};
    return factors;
}

// One over the sum of weights; zero if no key is attended.
DEVICE float inverse(const State& state) { return state.base == NEVER ? 0.0f : __frcp_rn(state.sum); }
