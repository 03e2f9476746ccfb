// Maps of tensors in memory, by which the unit that copies finds boxes of them.

// Compilers before 12.5 take a stride without its lowest bits, which are zero.
#if __CUDACC_VER_MAJOR__ > 12 || __CUDACC_VER_MINOR__ >= 5
constexpr u32 STRIDE_SHIFT = 0;
#else
constexpr u32 STRIDE_SHIFT = 4;
#endif

constexpr u32 MAP = 128; // Bytes of a map, and what it begins at a multiple of.

// What a map is of: numbers of sixteen bits in rows, and boxes of `height` rows of 64, swizzled. The innermost axis comes first; strides, in bytes, are those of
// the others.
template <int AXES>
struct Mapped {
    const void* first;
    u32 extents[AXES];
    u64 strides[AXES - 1];
    u32 height;
};

#define REPLACE(field, type, constraint, value) asm volatile("tensormap.replace.tile." field ".shared::cta.b1024." type ", %1;" ::"r"(at), constraint(value) : "memory")
#define REPLACE_AXIS(axis, box, extent)                                                                                                                 \
    REPLACE("box_dim", "b32 [%0], " axis, "r", box);                                                                                                    \
    REPLACE("global_dim", "b32 [%0], " axis, "r", extent);                                                                                              \
    REPLACE("element_stride", "b32 [%0], " axis, "r", 1)
#define REPLACE_STRIDE(axis, stride) REPLACE("global_stride", "b64 [%0], " axis, "l", stride >> STRIDE_SHIFT)

// By a thread, in shared memory.
template <int AXES>
DEVICE void make_map(u32 at, const Mapped<AXES>& of) {
    for (u32 i = 0; i < MAP; i += 16) {
        store_shared(at + i, {0, 0, 0, 0});
    }
    REPLACE("global_address", "b64 [%0]", "l", of.first);
    REPLACE("rank", "b32 [%0]", "r", AXES - 1);
    REPLACE_AXIS("0", 64, of.extents[0]);
    REPLACE_AXIS("1", of.height, of.extents[1]);
    REPLACE_STRIDE("0", of.strides[0]);
    if constexpr (AXES > 2) {
        static_assert(AXES == 4, "two or four axes");
        REPLACE_AXIS("2", 1, of.extents[2]);
        REPLACE_AXIS("3", 1, of.extents[3]);
        REPLACE_STRIDE("1", of.strides[1]);
        REPLACE_STRIDE("2", of.strides[2]);
    }
    REPLACE("elemtype", "b32 [%0]", "n", 1);
    REPLACE("interleave_layout", "b32 [%0]", "n", 0);
    REPLACE("swizzle_mode", "b32 [%0]", "n", 3);
    REPLACE("fill_mode", "b32 [%0]", "n", 0);
}

// By a warp: copies a map to memory, where the units that copy take it from.
DEVICE void publish_map(unsigned char* to, u32 at) {
    asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(__cvta_generic_to_global(to)), "r"(at)
                 : "memory");
}

// Before copies by a map that others published.
DEVICE void await_map(const unsigned char* map) { asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory"); }

// A box of the matrix of a map, from element `x` of row `y` on.
DEVICE void copy_box(u32 to, const unsigned char* map, u32 x, u32 y, u32 barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier)
                 : "memory");
}

// A box of the tensor of a map of four axes.
DEVICE void copy_box(u32 to, const unsigned char* map, u32 x, u32 y, u32 z, u32 w, u32 barrier) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to), "l"(map), "r"(x), "r"(y),
                 "r"(z), "r"(w), "r"(barrier)
                 : "memory");
}

// A box of two axes to a place of each of the thread blocks of the cluster.
DEVICE void copy_box_to_all(u32 to, const unsigned char* map, u32 x, u32 y, u32 barrier, u32 blocks) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to), "l"(map), "r"(x),
        "r"(y), "r"(barrier), "h"((unsigned short)((1 << blocks) - 1))
        : "memory");
}
