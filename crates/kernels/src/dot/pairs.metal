// Pairs of 16-bit integers times bytes, with a sign and without; and of a magnitude and a number of type T in either half the larger magnitude.
#ifdef INTEGER_DOTS
template <typename T>
inline uint larger_pair(uint a, uint b) {
    return elv::larger_half(a, b);
}

template <>
inline uint larger_pair<bfloat>(uint a, uint b) {
    return elv::larger_bfloat(a, b);
}

inline int dot_four(uint low, uint high, uint bytes, int sum) {
    return elv::dot_high(high, bytes, elv::dot_low(low, bytes, sum));
}

inline int dot_four_unsigned(uint low, uint high, uint bytes, int sum) {
    return elv::dot_high_unsigned(high, bytes, elv::dot_low_unsigned(low, bytes, sum));
}
#else
template <typename T>
inline uint larger_pair(uint a, uint b) {
    return as_type<uint>(max(as_type<ushort2>(a), as_type<ushort2>(b & 0x7fff7fffu)));
}

template <typename B>
inline int dot_two(uint pair, uint bytes, int sum) {
    sum += int(as_type<short>(ushort(pair))) * int(as_type<B>(uchar(bytes)));
    return sum + int(as_type<short>(ushort(pair >> 16))) * int(as_type<B>(uchar(bytes >> 8)));
}

inline int dot_four(uint low, uint high, uint bytes, int sum) {
    return dot_two<char>(high, bytes >> 16, dot_two<char>(low, bytes, sum));
}

inline int dot_four_unsigned(uint low, uint high, uint bytes, int sum) {
    return dot_two<uchar>(high, bytes >> 16, dot_two<uchar>(low, bytes, sum));
}
#endif
