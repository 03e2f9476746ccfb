// Keys in one piece.
struct Whole {
    // COUNT rows of a sequence from the key `first` on, which `rows` begins with, to a tile of BLOCK; zeros for those outside `some`.
    template <int COUNT>
    DEVICE void copy(int lane, u32 to, const KV* rows, i64 stride, int, KeyRange some, int first) const {
        copy_rows<COUNT, BLOCK>(lane, to, rows, stride, first, some);
    }
};
