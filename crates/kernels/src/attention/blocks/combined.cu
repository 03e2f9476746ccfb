// Adds up what blocks left of a row, in their order.

constexpr int TOGETHER = 8;  // Blocks whose sums are in flight at once.

// An element of a row whose query attends `keys`; `left` has its sum, and the row's state, of each block.
template <typename Left>
DEVICE float combined(const Left& left, KeyRange keys) {
    const int end = keys.start < keys.end ? (keys.end + BLOCK - 1) / BLOCK : 0;
    State state = {NEVER, 0.0f};
    float total = 0.0f;
    for (int first = keys.start / BLOCK; first < end; first += TOGETHER) {
        float next[TOGETHER];
        State next_states[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
            if (first + i < end) {
                next[i] = left.sum(first + i);
                next_states[i] = left.state(first + i);
            }
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
            if (first + i < end) {
                const Factors factors = add(state, next_states[i]);
                total = factors.combine(total, next[i]);
            }
        }
    }
    return __fmul_rn(total, inverse(state));
}
