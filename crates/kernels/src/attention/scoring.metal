// Which keys a query attends, and how a dot product becomes a score: as scoring.rs.

constant constexpr uint WITH_POSITIONS = 1;
constant constexpr uint WITH_LENGTHS = 2;
constant constexpr uint NO_MASK = 0xffffffffu;

inline ulong row_of(constant View& v, ulong batch, ulong head, ulong token) {
    return v.origin + batch * ulong(v.batch) + head * ulong(v.head) + token * ulong(v.token);
}

// Keys from `start` up to `end`.
struct KeyRange {
    uint start;
    uint end;

    bool is_empty() const { return start >= end; }
    bool holds(uint key) const { return start <= key && key < end; }
    // Whether the `count` keys from `first` on are all of these; whether any is.
    bool holds_all(uint first, uint count) const { return start <= first && first + count <= end; }
    bool meets(uint first, uint count) const { return first < end && first + count > start; }

    // A key of this range that is not empty.
    int nearest(uint key) const { return int(max(start, min(key, end - 1))); }
};

// The keys that query `t` of sequence `b` may attend, before any mask.
inline KeyRange attended(constant ScoreParams& p, device const int* positions, device const int* lengths, uint b, uint t) {
    const long position = p.given & WITH_POSITIONS ? long(positions[b * p.position_stride + t]) : p.offset + long(t);
    long high = long(p.keys);
    if (p.given & WITH_LENGTHS) {
        high = min(high, long(lengths[b]));
    }
    if (p.right >= 0) {
        high = min(high, position + p.right + 1);
    }
    high = max(high, 0l);
    const long low = p.left >= 0 ? max(position - p.left, 0l) : 0l;
    return {uint(min(low, high)), uint(high)};
}

inline float masked(float score, device const bool* mask, ulong at) {
    return reinterpret_cast<device const uchar*>(mask)[at] ? score : -INFINITY;
}

template <typename M>
inline float masked(float score, device const M* mask, ulong at) {
    return score + widen(mask[at]);
}

// What the soft cap and the mask make of the score of a key that query `t` of head `h` attends.
template <typename M>
inline float adjusted(constant ScoreParams& p, float score, device const M* mask, uint b, uint h, uint t, uint key) {
    if (p.softcap > 0.0f) {
        score = p.softcap * strict::tanh(score / p.softcap);
    }
    return p.mask_type == NO_MASK ? score : masked(score, mask, row_of(p.mask.view, b, h, t) + key * ulong(p.mask.key));
}
