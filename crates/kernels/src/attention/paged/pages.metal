// Keys in pages. A simdgroup's 32 keys of a block lie in one page, so that a step from key to key is as in one piece.
struct Paged {
    // The sequence's entries; a page's tokens; pages of the cache.
    device const int* table;
    uint entries;
    uint page;
    uint pages;
    device atomic_uint* error_flag;
    // The simdgroup's first key of the block, and how far the slots are from the keys.
    uint first;
    long shift;
    bool missing;

    KeyRange stored(KeyRange keys) const { return keys; }
    bool is_among(uint, uint) const { return false; }
    template <uint N>
    void replace_key(uint, uint, thread float (&)[N]) const {}
    template <uint N>
    void replace_value(uint, uint, thread float (&)[N]) const {}

    // `keys` are those that are attended.
    KeyRange turn(uint start, KeyRange keys) {
        first = start;
        const uint index = start / page;
        const uint entry = uint(table[min(index, entries - 1)]);
        missing = entry >= pages && start < keys.end && keys.start < start + GROUP;
        if (missing) {
            reject(error_flag, index);
        }
        shift = long(entry < pages ? entry : 0) * long(page) + long(start % page) - long(start);
        return keys;
    }
    bool is_missing() const { return missing; }

    // Where a key of the group is, if it is attended; where another of the group is, if not.
    template <typename T>
    device const T* nearest(device const T* base, KeyRange keys, uint key, int step) const {
        const uint inside = max(first, min(uint(keys.nearest(key)), first + GROUP - 1));
        return at(base, inside, step);
    }
    template <typename T>
    device const T* at(device const T* base, uint key, int step) const {
        return base + (long(key) + shift) * long(step);
    }
};
