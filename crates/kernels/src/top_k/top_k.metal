// The k best elements of a row, by a threadgroup. Elements become keys, the best ones greatest. The k-th greatest key is found eight bits at a
// time: in each pass the keys that share the bits found before are counted by their next eight. Then the greater keys, and of the equal
// ones as many of the first as are missing, are gathered in the order of their indices, and sorted where that is wanted.
//
// Memory: a row is read once for each byte of an element and once to gather, all but the first time from the cache.

constant constexpr uint BINS = 256;
constant constexpr uint LISTED = 1024;

// The elements of a row, and who reads them.
template <typename T>
struct Elements {
    typedef typename SortKey<T>::type K;
    device const T* row;
    ulong stride;
    ulong n;
    K flip;
    uint index;
    uint threads;
    uint lane;
    uint simdgroup;
    bool wide;

    Slots<T> load(ulong k, uint left) const {
        if (wide && left == SLOTS) {
            return *reinterpret_cast<device const Slots<T>*>(row + k);
        }
        Slots<T> slots;
        for (uint i = 0; i < SLOTS; ++i) {
            slots.at[i] = i < left ? row[(k + i) * stride] : T(0);
        }
        return slots;
    }

    K key(T x) const { return SortKey<T>::of(x) ^ flip; }
};

// The number of the bin, counted from the greatest, in which the element with this rank lies, and its rank there. For every lane.
inline uint2 find_bin(threadgroup atomic_uint* bins, uint rank, uint lane) {
    uint counts[SLOTS];
    uint total = 0;
    for (uint i = 0; i < SLOTS; ++i) {
        counts[i] = atomic_load_explicit(bins + (BINS - 1 - (SLOTS * lane + i)), memory_order_relaxed);
        total += counts[i];
    }
    uint before = simd_prefix_exclusive_sum(total);
    uint2 found = uint2(0, 0);
    for (uint i = 0; i < SLOTS; ++i) {
        if (before < rank && rank <= before + counts[i]) {
            found = uint2(BINS - 1 - (SLOTS * lane + i), rank - before);
        }
        before += counts[i];
    }
    return uint2(simd_sum(found.x), simd_sum(found.y));
}

// The key of the element with this rank, counted from one; `rank` becomes its rank among the elements with that key.
template <typename T>
inline typename SortKey<T>::type find_key(Elements<T> elements, thread uint& rank, threadgroup atomic_uint* memory) {
    typedef typename SortKey<T>::type K;
    K key = 0, known = 0;
    for (uint shift = 8 * sizeof(T); shift > 0;) {
        shift -= 8;
        threadgroup atomic_uint* bins = memory + (shift & 8 ? BINS : 0);
        for (uint bin = elements.index; bin < BINS; bin += elements.threads) {
            atomic_store_explicit(bins + bin, 0u, memory_order_relaxed);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (ulong k = SLOTS * elements.index; k < elements.n; k += SLOTS * elements.threads) {
            const uint left = slots_left(k, elements.n);
            const Slots<T> slots = elements.load(k, left);
            for (uint i = 0; i < SLOTS; ++i) {
                const K other = elements.key(slots.at[i]);
                if (i < left && (other & known) == key) {
                    atomic_fetch_add_explicit(bins + uint(other >> shift & (BINS - 1)), 1u, memory_order_relaxed);
                }
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        const uint2 found = find_bin(bins, rank, elements.lane);
        key |= K(found.x) << shift;
        known |= K(BINS - 1) << shift;
        rank = found.y;
    }
    return key;
}

// Calls sink.put(place, element, key, index) for the elements with greater keys than `last` and the first `ties` of those with this key, in the
// order of their indices. `counts` holds a number for each simdgroup, twice.
template <typename T, typename Sink>
inline void gather(Elements<T> elements, typename SortKey<T>::type last, uint ties, threadgroup uint* counts, Sink sink) {
    typedef typename SortKey<T>::type K;
    const uint chunk = SLOTS * elements.threads;
    // How many came before: in the lower half greater keys, in the upper equal ones.
    uint greater = 0, equal = 0;
    for (ulong start = 0; start < elements.n; start += chunk) {
        const ulong first = start + SLOTS * elements.index;
        const uint left = slots_left(first, elements.n);
        const Slots<T> slots = elements.load(first, left);
        uint mine = 0;
        for (uint i = 0; i < SLOTS; ++i) {
            const K key = elements.key(slots.at[i]);
            mine += i < left ? (key > last ? 1u : 0u) + (key == last ? 0x10000u : 0u) : 0u;
        }
        const uint lanes_before = simd_prefix_exclusive_sum(mine);
        threadgroup uint* totals = counts + (start & chunk ? 32 : 0);
        if (elements.lane == 31) {
            totals[elements.simdgroup] = lanes_before + mine;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        const uint total = elements.lane < elements.threads / 32 ? totals[elements.lane] : 0;
        const uint simdgroups_before = simd_prefix_exclusive_sum(total);
        const uint before = lanes_before + simd_shuffle(simdgroups_before, ushort(elements.simdgroup));
        uint above = greater + (before & 0xffff), same = equal + (before >> 16);
        for (uint i = 0; i < SLOTS; ++i) {
            const K key = elements.key(slots.at[i]);
            if (i < left && (key > last || (key == last && same < ties))) {
                sink.put(above + min(same, ties), slots.at[i], key, uint(first) + i);
            }
            above += i < left && key > last;
            same += i < left && key == last;
        }
        const uint all = simd_shuffle(simdgroups_before + total, ushort(31));
        greater += all & 0xffff;
        equal += all >> 16;
    }
}

template <typename T>
struct ToList {
    Listed<typename SortKey<T>::type> list;
    void put(uint place, T, typename SortKey<T>::type key, uint index) const { list.put(place, key, index); }
};

template <typename T>
struct ToOutputs {
    Stored<T> outputs;
    void put(uint place, T value, typename SortKey<T>::type, uint index) const { outputs.put(place, value, index); }
};

template <typename T>
[[kernel]] void top_k(
    device const T* x [[buffer(0)]],
    device T* values [[buffer(1)]],
    device long* indices [[buffer(2)]],
    constant Params& params [[buffer(3)]],
    threadgroup ulong* memory [[threadgroup(0)]],
    uint row [[threadgroup_position_in_grid]],
    uint threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    typedef typename SortKey<T>::type K;
    const ulong length = params.rows.length, inner = params.rows.inner;
    const ulong outer_index = row / inner, inner_index = row % inner;
    device const T* from = x + (outer_index * length * inner + inner_index);
    const K flip = params.largest ? K(0) : SortKey<T>::MASK;
    const uint index = 32 * simdgroup + lane, count = uint(params.k);
    const Elements<T> elements = {from, inner, length, flip, index, threads, lane, simdgroup, inner == 1 && is_aligned(from)};
    threadgroup uint* counts = reinterpret_cast<threadgroup uint*>(memory) + 2 * BINS;

    uint ties = count;
    const K last = find_key(elements, ties, reinterpret_cast<threadgroup atomic_uint*>(memory));
    const ulong to = outer_index * count * inner + inner_index;
    const Stored<T> outputs = {values + to, indices + to, inner, flip};
    if (!params.sorted || count > LISTED) {
        gather(elements, last, ties, counts, ToOutputs<T>{outputs});
        if (params.sorted) {
            sort(outputs, count, index, threads);
        }
        return;
    }
    threadgroup K* keys = reinterpret_cast<threadgroup K*>(counts + 64);
    const Listed<K> list = {keys, reinterpret_cast<threadgroup uint*>(keys + count)};
    gather(elements, last, ties, counts, ToList<T>{list});
    sort(list, count, index, threads);
    for (uint place = index; place < count; place += threads) {
        outputs.put(place, from[list.indices[place] * inner], list.indices[place]);
    }
}
