// Cumulative sums: a row has up to eight simdgroups, each of which takes four segments of 32 elements of every block of 1024, an element a lane.
// The segments' totals go through threadgroup memory, and every simdgroup scans them for itself. Short rows share a threadgroup.
//
// Memory: the input is read once, the output is written once. Order: see the operator.

template <typename A>
inline A shuffle_up(A value, ushort distance) {
    return simd_shuffle_up(value, distance);
}

inline ulong shuffle_up(ulong value, ushort distance) {
    return as_type<ulong>(simd_shuffle_up(as_type<uint2>(value), distance));
}

// Sums up to each lane, by doubling distances.
template <typename A>
inline A scan_lanes(A value, uint lane) {
    for (ushort distance = 1; distance != 32; distance *= 2) {
        const A before = shuffle_up(value, distance);
        value = lane >= distance ? before + value : value;
    }
    return value;
}

constant constexpr uint SEGMENTS = 4;
constant constexpr uint BLOCK = 1024;
constant constexpr uint TOTALS = 32;

template <typename T>
[[kernel]] void cumsum(
    device const T* x [[buffer(0)]],
    device T* y [[buffer(1)]],
    constant Params& params [[buffer(2)]],
    threadgroup ulong* memory [[threadgroup(0)]],
    uint group [[threadgroup_position_in_grid]],
    uint simdgroups [[simdgroups_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    typedef typename Accumulator<T>::wrapping A;
    const uint share = params.simdgroups;
    const ulong row = ulong(group) * (simdgroups / share) + simdgroup / share;
    const ulong length = params.rows.length, inner = params.rows.inner;
    const ulong n = row < params.rows.outer * inner ? length : 0;
    const ulong start = row / inner * length * inner + row % inner;
    const uint first = simdgroup % share * SEGMENTS;

    A carry = 0;
    for (ulong block = 0; block < length; block += BLOCK) {
        // Of this row; even and odd blocks have their own.
        threadgroup A* totals = reinterpret_cast<threadgroup A*>(memory) + (block & BLOCK ? TOTALS : 0) + simdgroup / share * share * SEGMENTS;
        A sums[SEGMENTS];
        for (uint s = 0; s < SEGMENTS; ++s) {
            const ulong k = block + 32 * (first + s) + lane;
            A value = 0;
            if (k < n) {
                value = accumulable<A>(x[start + inner * (params.reverse ? length - 1 - k : k)]);
            }
            sums[s] = scan_lanes(value, lane);
            if (lane == 31) {
                totals[first + s] = sums[s];
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        const A scanned = scan_lanes(lane < share * SEGMENTS ? totals[lane] : A(0), lane);
        for (uint s = 0; s < SEGMENTS; ++s) {
            const A before = shuffle(scanned, ushort(max(first + s, 1u) - 1));
            const A sum = first + s == 0 ? carry + sums[s] : carry + (before + sums[s]);
            const ulong k = block + 32 * (first + s) + lane + params.exclusive;
            if (k < n) {
                y[start + inner * (params.reverse ? length - 1 - k : k)] = element<T>(sum);
            }
        }
        carry += shuffle(scanned, ushort(31));
    }
    if (params.exclusive && n > 0 && first == 0 && lane == 0) {
        y[start + inner * (params.reverse ? length - 1 : 0)] = T(0);
    }
}
