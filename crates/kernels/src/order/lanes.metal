// The lanes' xor tree for several sums at once: at each step a lane hands half of its sums to its partner and keeps the other half, so that
// N sums cost about as many shuffles as one. Additions commute: the bits are those of the plain tree.

// Sums of N values (a power of two) over groups of WIDTH lanes (32 for the canonical tree; fewer where the other lanes hold nothing).
template <uint N, uint WIDTH>
struct LaneSums {
    // Sums that a lane ends with.
    static constexpr constant uint HELD = N > WIDTH ? N / WIDTH : 1;
    // Lanes that end with the same sums.
    static constexpr constant uint SHARING = N > WIDTH ? 1 : WIDTH / N;

    // The number of the first sum that a lane ends with.
    static uint first(uint lane) { return lane % WIDTH / SHARING * HELD; }

    // Whether no lane below has the same.
    static bool leads(uint lane) { return lane % SHARING == 0; }

    // Leaves the sums in values[0 … HELD).
    static void apply(thread float* values, uint lane) {
        uint n = N;
        for (uint mask = WIDTH / 2; mask > 0; mask /= 2) {
            const bool upper = (lane & mask) != 0;
            if (n == 1) {
                values[0] += simd_shuffle_xor(values[0], ushort(mask));
                continue;
            }
            n /= 2;
            for (uint i = 0; i < n; ++i) {
                const float given = upper ? values[i] : values[n + i];
                const float kept = upper ? values[n + i] : values[i];
                values[i] = kept + simd_shuffle_xor(given, ushort(mask));
            }
        }
    }
};
