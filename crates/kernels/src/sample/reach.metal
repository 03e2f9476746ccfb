// How far the best tokens of a row reach: digit by digit of their keys, by one threadgroup. Amounts are integers, so that no order of sums is needed.

constant constexpr uint DIGITS = 256;

struct Shared {
    // Amounts of keys by digit: the lower words, then the upper.
    atomic_uint bins[2 * DIGITS];
    Best best[32];
};

// A thread's place in the threadgroup.
struct Worker {
    threadgroup Shared* shared;
    uint index;
    uint threads;
    uint lane;
    uint simdgroup;

    static void wait() { threadgroup_barrier(mem_flags::mem_threadgroup); }

    // The best of all threads', for all of them.
    Best best(Best mine) const {
        mine.share();
        if (lane == 0) {
            shared->best[simdgroup] = mine;
        }
        wait();
        mine = {-INFINITY, 0xffffffffu};
        if (lane < threads / 32) {
            mine = shared->best[lane];
        }
        mine.share();
        wait();
        return mine;
    }

    void clear() const {
        for (uint i = index; i < 2 * DIGITS; i += threads) {
            atomic_store_explicit(&shared->bins[i], 0u, memory_order_relaxed);
        }
        wait();
    }

    void add(uint digit, ulong amount) const {
        if (amount == 0) {
            return;
        }
        const uint low = uint(amount);
        const uint old = atomic_fetch_add_explicit(&shared->bins[digit], low, memory_order_relaxed);
        const uint high = uint(amount >> 32) + (old + low < old ? 1u : 0u);
        if (high > 0) {
            atomic_fetch_add_explicit(&shared->bins[DIGITS + digit], high, memory_order_relaxed);
        }
    }

    ulong amount(uint digit) const {
        const uint low = atomic_load_explicit(&shared->bins[digit], memory_order_relaxed);
        return ulong(atomic_load_explicit(&shared->bins[DIGITS + digit], memory_order_relaxed)) << 32 | low;
    }
};

// Greater for the better token: by the logit, of equals by the lower number.
inline ulong rank_key(float logit, uint token) {
    const uint bits = as_type<uint>(logit);
    return ulong(bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u)) << 32 | ~token;
}

// A row's tokens and what each weighs: 1, or its probability relative to the most likely's in units of 2^-31.
template <typename T>
struct Tokens {
    RowReader<T> row;
    uint n;
    float most;
    float temperature;
    bool weighed;

    float score(float logit) const { return (logit - most) / temperature; }

    ulong weight(float logit) const { return weighed ? ulong(strict::exp(score(logit)) * 2147483648.0f) : 1; }

    // All that is at least `least`.
    ulong total(ulong least, Worker w) const {
        ulong sum = 0;
        for (uint k = SLOTS * w.index; k < n; k += SLOTS * w.threads) {
            float slots[SLOTS];
            row.load(k, -INFINITY, slots);
            for (uint i = 0; i < SLOTS && k + i < n; ++i) {
                if (rank_key(slots[i], k + i) >= least) {
                    sum += weight(slots[i]);
                }
            }
        }
        for (ushort mask = 16; mask > 0; mask /= 2) {
            sum += shuffle_xor(sum, mask);
        }
        w.clear();
        if (w.lane == 0) {
            w.add(0, sum);
        }
        w.wait();
        sum = w.amount(0);
        w.wait();
        return sum;
    }

    // Amounts by the digit at `shift`, of keys at least `least` that begin with `prefix`. Neighbours of one digit are added at once.
    void count(ulong least, ulong prefix, uint shift, Worker w) const {
        for (uint k = SLOTS * w.index; k < n; k += SLOTS * w.threads) {
            float slots[SLOTS];
            row.load(k, -INFINITY, slots);
            uint digit = 0;
            ulong amount = 0;
            for (uint i = 0; i < SLOTS && k + i < n; ++i) {
                const ulong key = rank_key(slots[i], k + i);
                if (key < least || (key ^ prefix) >> shift >> 8 != 0) {
                    continue;
                }
                const uint next = uint(key >> shift) % DIGITS;
                if (next != digit) {
                    w.add(digit, amount);
                    digit = next;
                    amount = 0;
                }
                amount += weight(slots[i]);
            }
            w.add(digit, amount);
        }
    }

    // The key of the token at which those that are at least `least`, the best first, weigh `enough` together (no more than all of them do).
    ulong reach(ulong least, ulong enough, Worker w) const {
        constexpr uint EACH = DIGITS / 32;
        ulong prefix = 0;
        uint shift = 64;
        do {
            shift -= 8;
            if (shift < 32 && shift > 0 && n <= 1u << shift) {
                // All numbers share this digit.
                prefix |= 0xfful << shift;
                continue;
            }
            w.clear();
            count(least, prefix, shift, w);
            w.wait();
            // A lane has the digits first, first - 1, …
            const uint first = DIGITS - 1 - EACH * w.lane;
            ulong sum = 0;
            for (uint i = 0; i < EACH; ++i) {
                sum += w.amount(first - i);
            }
            ulong before = sum;
            for (uint step = 1; step < 32; step *= 2) {
                const ulong other = shuffle(before, ushort(w.lane < step ? w.lane : w.lane - step));
                before += w.lane < step ? 0 : other;
            }
            before -= sum;
            uint digit = 0;
            ulong left = 0, whole = 0;
            if (before < enough && enough <= before + sum) {
                left = enough - before;
                for (digit = first; left > w.amount(digit); --digit) {
                    left -= w.amount(digit);
                }
                whole = w.amount(digit);
            }
            // Of one lane; the others have zeros.
            for (ushort mask = 16; mask > 0; mask /= 2) {
                digit |= simd_shuffle_xor(digit, mask);
                left |= shuffle_xor(left, mask);
                whole |= shuffle_xor(whole, mask);
            }
            w.wait();
            prefix |= ulong(digit) << shift;
            enough = left;
            if (!weighed && left == whole) {
                // All of the digit's keys.
                return prefix;
            }
        } while (shift > 0);
        return prefix;
    }
};
