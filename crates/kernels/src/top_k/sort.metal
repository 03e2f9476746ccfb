// Sorting by a threadgroup, best first: a bitonic network whose merges begin with mirrored pairs, so that every exchange puts the better
// element first and elements beyond the end, worse than all, need not exist.

// The best elements in threadgroup memory, as keys and indices.
template <typename K>
struct Listed {
    threadgroup K* keys;
    threadgroup uint* indices;

    void put(uint place, K key, uint index) const {
        keys[place] = key;
        indices[place] = index;
    }

    void exchange(uint i, uint j) const {
        const K a = keys[i], b = keys[j];
        const uint first = indices[i], second = indices[j];
        if (b > a || (b == a && second < first)) {
            put(i, b, second);
            put(j, a, first);
        }
    }

    static void wait() { threadgroup_barrier(mem_flags::mem_threadgroup); }
};

// The best elements of a row in the outputs.
template <typename T>
struct Stored {
    device T* values;
    device long* indices;
    ulong stride;
    typename SortKey<T>::type flip;

    void put(uint place, T value, long index) const {
        values[place * stride] = value;
        indices[place * stride] = index;
    }

    void exchange(uint i, uint j) const {
        const T x = values[i * stride], y = values[j * stride];
        const long first = indices[i * stride], second = indices[j * stride];
        const typename SortKey<T>::type a = SortKey<T>::of(x) ^ flip, b = SortKey<T>::of(y) ^ flip;
        if (b > a || (b == a && second < first)) {
            put(i, y, second);
            put(j, x, first);
        }
    }

    static void wait() { threadgroup_barrier(mem_flags::mem_device); }
};

template <typename List>
inline void exchange_pairs(List list, uint count, uint distance, bool mirrored, uint index, uint threads) {
    for (uint pair = index; pair < next_power_of_two(count) / 2; pair += threads) {
        const uint inside = pair & (distance - 1);
        const uint block = 2 * (pair - inside);
        const uint other = block + (mirrored ? 2 * distance - 1 - inside : distance + inside);
        if (other < count) {
            list.exchange(block + inside, other);
        }
    }
    List::wait();
}

template <typename List>
inline void sort(List list, uint count, uint index, uint threads) {
    List::wait();
    for (uint half_size = 1; half_size < count; half_size *= 2) {
        exchange_pairs(list, count, half_size, true, index, threads);
        for (uint distance = half_size / 2; distance > 0; distance /= 2) {
            exchange_pairs(list, count, distance, false, index, threads);
        }
    }
}
