// Which keys a query attends, and where rows are, in CUDA C++: as scoring.rs.

constexpr u32 WITH_POSITIONS = 1;
constexpr u32 WITH_LENGTHS = 2;

struct KeyRange {
    int start;
    int end;
};

// The keys that a query may attend.
DEVICE KeyRange attended(const ScoreParams& p, const int* positions, const int* lengths, int batch, int query) {
    const i64 position = p.given & WITH_POSITIONS ? i64(positions[batch * p.position_stride + query]) : p.offset + query;
    i64 high = i64(p.keys);
    if (p.given & WITH_LENGTHS) {
        high = min(high, i64(lengths[batch]));
    }
    if (p.right >= 0) {
        high = min(high, position + p.right + 1);
    }
    high = max(high, i64(0));
    const i64 low = p.left >= 0 ? max(position - p.left, i64(0)) : i64(0);
    return {int(min(low, high)), int(high)};
}

DEVICE i64 row_of(const View& v, int batch, int head, int token) {
    return i64(v.origin) + batch * v.batch + head * v.head + token * v.token;
}
