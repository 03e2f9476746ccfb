// Updates combined with what indices name, in ascending order, each result rounded.
//
// Updates form lines that never meet in an element, each in order. A threadgroup takes `width` neighbouring lines and walks them in chunks. The
// first update of a chunk that names an element also applies the later ones that name it, so that an element has one writer at a time; a barrier
// keeps the chunks in order. Updates and indices are read once, an element once for each chunk that names it.

struct Replace {
    template <typename T>
    static T apply(T, T update) { return update; }
};

template <uint REDUCTION>
struct Reduction {
    typedef Replace Op;
};

template <>
struct Reduction<1> {
    typedef function::Add Op;
};

template <>
struct Reduction<2> {
    typedef function::Mul Op;
};

template <>
struct Reduction<3> {
    typedef function::Min Op;
};

template <>
struct Reduction<4> {
    typedef function::Max Op;
};

// `places` says where update number k of the thread's line lies, and its element. `elements` holds one number for each thread.
template <typename Op, typename T, typename Places>
inline void scatter_line(
    device const T* updates, device T* y, Places places, bool exists, ulong length, uint width, threadgroup ulong* elements, uint index)
{
    const uint line = index % width, slot = index / width, chunk = THREADS / width;
    for (ulong start = 0; start < length; start += chunk) {
        const ulong element = exists && start + slot < length ? places.element(start + slot) : OUTSIDE;
        elements[index] = element;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        bool leads = element != OUTSIDE;
        for (uint earlier = 0; earlier < slot && leads; ++earlier) {
            leads = elements[earlier * width + line] != element;
        }
        if (leads) {
            typename Stored<T>::type value = stored(y)[element];
            for (uint k = slot; k < chunk; ++k) {
                if (elements[k * width + line] == element) {
                    value = pack<T>(Op::apply(unpack<T>(value), unpack<T>(stored(updates)[places.update(start + k)])));
                }
            }
            stored(y)[element] = value;
        }
        threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
    }
}
