// Philox 4x32-10, a generator without state: four words for a counter of four and a key of two.

inline uint4 philox(uint4 counter, uint2 key) {
    for (uint round = 0; round < 10; ++round) {
        const uint high0 = mulhi(0xd2511f53u, counter.x), low0 = 0xd2511f53u * counter.x;
        const uint high1 = mulhi(0xcd9e8d57u, counter.z), low1 = 0xcd9e8d57u * counter.z;
        counter = uint4(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
        key += uint2(0x9e3779b9u, 0xbb67ae85u);
    }
    return counter;
}
