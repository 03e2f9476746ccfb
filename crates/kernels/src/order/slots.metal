// Neighbouring elements, in words of up to 16 bytes.
template <typename T>
struct alignas(sizeof(T) == 1 ? 8 : 16) Slots {
    T at[SLOTS];
};

template <typename T>
inline bool is_aligned(device const T* p) {
    return (reinterpret_cast<ulong>(p) & (alignof(Slots<T>) - 1)) == 0;
}
