// Which threads reduce an output, and how they fold its elements: in the canonical row order, given a function object that takes
// elements into accumulators of type A by step(accumulator, element, k) and combines two by apply.
//
// Along the last axis an output has the threads of its row. Along others, neighbouring outputs lie side by side in memory: a threadgroup of
// THREADS threads takes a tile of them, Y threads for each, of which thread y does what lanes y, y + 8, y + 16 and y + 24 of every simdgroup would.

constant constexpr uint THREADS = 256;

template <uint COLUMNS>
struct Share;

template <>
struct Share<0> {
    RowThread t;
    ulong output;
    ulong n;
    bool leads;

    Share(constant Geometry& g, uint group, uint threads, uint simdgroup, uint lane) : t(row_thread(g.length, group, threads, simdgroup, lane)) {
        const bool exists = t.row < g.outer;
        output = t.row;
        n = exists ? g.length : 0;
        leads = exists && t.index == 0;
    }

    // For all threads.
    template <typename Op, typename T>
    typename Op::A fold(Op op, device const T* x, constant Geometry& g, threadgroup typename Op::A* memory) const {
        typename Op::A accumulators[SLOTS];
        for (uint i = 0; i < SLOTS; ++i) {
            accumulators[i] = Op::identity();
        }
        device const T* row = x + kept_offset(g, output);
        const bool contiguous = g.reduced_extents[AXES - 1] == g.length;
        const bool wide = contiguous && is_aligned(row);
        const ulong stride = SLOTS * t.count;
        for (ulong k = SLOTS * t.index; k < n; k += stride) {
            const uint left = slots_left(k, n);
            Slots<T> slots;
            if (wide && left == SLOTS) {
                slots = *reinterpret_cast<device const Slots<T>*>(row + k);
            } else {
                for (uint i = 0; i < SLOTS; ++i) {
                    slots.at[i] = i < left ? row[contiguous ? k + i : reduced_offset(g, k + i)] : T(0);
                }
            }
            for (uint i = 0; i < SLOTS; ++i) {
                accumulators[i] = i < left ? op.step(accumulators[i], slots.at[i], k + i) : accumulators[i];
            }
        }
        return combine_row<Op>(accumulators, t, memory);
    }

    template <typename A>
    A broadcast(A total, threadgroup A*) const {
        return total;
    }
};

template <>
struct Share<1> {
    uint thread_index;
    uint width;
    uint y;
    uint depth;
    ulong output;
    ulong n;
    bool leads;

    Share(constant Geometry& g, uint group, uint, uint simdgroup, uint lane) : thread_index(32 * simdgroup + lane) {
        depth = next_power_of_two(uint(min((g.length + SLOTS - 1) / SLOTS, 8ul)));
        width = THREADS / depth;
        y = thread_index / width;
        output = ulong(group) * width + thread_index % width;
        const bool exists = output < g.outer * g.inner;
        n = exists ? g.length : 0;
        leads = exists && y == 0;
    }

    // For the leading threads.
    template <typename Op, typename T>
    typename Op::A fold(Op op, device const T* x, constant Geometry& g, threadgroup typename Op::A* tile) const {
        device const T* column = x + (kept_offset(g, output / g.inner) + output % g.inner);
        const uint count = row_threads(g.length);
        typename Op::A total = Op::identity();
        for (uint first = 0; first < count; first += 32) {
            const typename Op::A even = Op::apply(lane(op, column, g, first + y, count), lane(op, column, g, first + y + 16, count));
            const typename Op::A odd = Op::apply(lane(op, column, g, first + y + 8, count), lane(op, column, g, first + y + 24, count));
            const typename Op::A value = combine_depth<Op>(Op::apply(even, odd), tile);
            total = first == 0 ? value : Op::apply(total, value);
        }
        return total;
    }

    // What thread `index` of the `count` that share a row has after its slots.
    template <typename Op, typename T>
    typename Op::A lane(Op op, device const T* column, constant Geometry& g, uint index, uint count) const {
        typename Op::A accumulators[SLOTS];
        for (uint i = 0; i < SLOTS; ++i) {
            accumulators[i] = Op::identity();
        }
        for (ulong k = SLOTS * index; k < n; k += SLOTS * count) {
            for (uint i = 0; i < SLOTS; ++i) {
                if (k + i < n) {
                    accumulators[i] = op.step(accumulators[i], column[reduced_offset(g, k + i)], k + i);
                }
            }
        }
        return combine_slots<Op>(accumulators);
    }

    template <typename Op, typename A>
    A combine_depth(A value, threadgroup A* tile) const {
        for (uint d = depth / 2; d > 0; d /= 2) {
            if (d <= y && y < 2 * d) {
                tile[thread_index] = value;
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
            if (y < d) {
                value = Op::apply(value, tile[thread_index + d * width]);
            }
        }
        return value;
    }

    // The leading threads' totals for all that share their outputs.
    template <typename A>
    A broadcast(A total, threadgroup A* tile) const {
        if (y == 0) {
            tile[thread_index] = total;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        return tile[thread_index % width];
    }
};
