// A logit and its token: the best of those seen. The greatest wins, of equals the first, which is the same in any order.
struct Best {
    float logit;
    uint token;

    // Both see tokens in ascending order, so that an equal one is later.
    void see(float other, uint number) {
        if (other > logit) {
            logit = other;
            token = number;
        }
    }

    void meet(float other, uint number) {
        if (other > logit || (other == logit && number < token)) {
            logit = other;
            token = number;
        }
    }

    // The best of the lanes, for all of them.
    void share() {
        for (ushort mask = 16; mask > 0; mask /= 2) {
            const float other = simd_shuffle_xor(logit, mask);
            const uint number = simd_shuffle_xor(token, mask);
            meet(other, number);
        }
    }
};
