// Maps of matrices, by which the units that copy find boxes of them.

// Compilers before 12.5 take a stride without its lowest bits, which are zero.
#if __CUDACC_VER_MAJOR__ > 12 || __CUDACC_VER_MINOR__ >= 5
constexpr u32 STRIDE_SHIFT = 0;
#else
constexpr u32 STRIDE_SHIFT = 4;
#endif

// What a map is of: `n` rows of `k` numbers of sixteen bits, and boxes of `height` rows of 64, swizzled.
struct Mapped {
    const void* matrix;
    u64 k;
    u64 n;
    u32 height;
};

// By a thread, in shared memory, at a multiple of 128.
DEVICE void make_map(u32 at, const Mapped& of) {
    for (u32 i = 0; i < 128; i += 16) {
        store_shared(at + i, {0, 0, 0, 0});
    }
#define REPLACE(field, type, constraint, value) asm volatile("tensormap.replace.tile." field ".shared::cta.b1024." type ", %1;" ::"r"(at), constraint(value) : "memory")
    REPLACE("global_address", "b64 [%0]", "l", of.matrix);
    REPLACE("rank", "b32 [%0]", "r", 1);
    REPLACE("box_dim", "b32 [%0], 0", "r", 64);
    REPLACE("box_dim", "b32 [%0], 1", "r", of.height);
    REPLACE("global_dim", "b32 [%0], 0", "r", u32(of.k));
    REPLACE("global_dim", "b32 [%0], 1", "r", u32(of.n));
    REPLACE("global_stride", "b64 [%0], 0", "l", 2 * of.k >> STRIDE_SHIFT);
    REPLACE("element_stride", "b32 [%0], 0", "r", 1);
    REPLACE("element_stride", "b32 [%0], 1", "r", 1);
    REPLACE("elemtype", "b32 [%0]", "n", 1);
    REPLACE("interleave_layout", "b32 [%0]", "n", 0);
    REPLACE("swizzle_mode", "b32 [%0]", "n", 3);
    REPLACE("fill_mode", "b32 [%0]", "n", 0);
}

// By a warp: copies a map to memory, where the units that copy take it from.
DEVICE void publish_map(unsigned char* to, u32 at) {
    asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(__cvta_generic_to_global(to)), "r"(at)
                 : "memory");
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(to) : "memory");
}

// A box of the matrix of a map, from element `x` of row `y` on.
DEVICE void copy_box(u32 to, const unsigned char* map, u32 x, u32 y, u32 barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier)
                 : "memory");
}

// The same to a place of each of the thread blocks of the cluster.
DEVICE void copy_box_to_all(u32 to, const unsigned char* map, u32 x, u32 y, u32 barrier, u32 blocks) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to), "l"(map), "r"(x),
        "r"(y), "r"(barrier), "h"((unsigned short)((1 << blocks) - 1))
        : "memory");
}
