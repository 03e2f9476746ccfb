// Instructions of compute capability 9.0: barriers in shared memory, asynchronous copies, products of warpgroups.

DEVICE u32 shared_address(const void* p) { return u32(__cvta_generic_to_shared(p)); }

DEVICE void init(u32 barrier, u32 count) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory"); }

DEVICE void arrive(u32 barrier) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory"); }

DEVICE bool has_passed(u32 barrier, u32 parity) {
    u32 passed;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(passed)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return passed != 0;
}

DEVICE void wait(u32 barrier, u32 parity) {
    while (!has_passed(barrier, parity)) {
    }
}

DEVICE void copy_async(u32 to, const void* from, u32 bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

DEVICE void copy_async(u32 to, const void* from) { asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory"); }

// Once what this thread has sent for is there.
DEVICE void arrive_after_copies(u32 barrier) { asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory"); }

// Four, eight or sixteen of them.
template <u32 BYTES>
DEVICE void copy_bytes(u32 to, const void* from) {
    if constexpr (BYTES == 16) {
        copy_async(to, from);
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(BYTES) : "memory");
    }
}

DEVICE float load_shared(u32 from) {
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(from) : "memory");
    return x;
}

DEVICE float2 load_two(u32 from) {
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(from) : "memory");
    return x;
}

DEVICE float4 load_four(u32 from) {
    float4 x;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "r"(from) : "memory");
    return x;
}

DEVICE void store_shared(u32 to, const u32 (&words)[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]) : "memory");
}

DEVICE void store_shared(u32 to, unsigned short x) { asm volatile("st.shared.b16 [%0], %1;" ::"r"(to), "h"(x) : "memory"); }

// How wgmma is given a matrix in shared memory: rows of 128 bytes after each other, swizzled, in panels that are `panel` bytes apart.
DEVICE u64 descriptor(u32 address, u32 panel) { return u64(address >> 4) | u64(panel >> 4) << 16 | u64(1024 >> 4) << 32 | u64(1) << 62; }

// The descriptor of what lies so many bytes further on. Only its low word is added to, which takes uniform registers where a warp's threads have it alike.
DEVICE u64 offset_by(u64 descriptor, u32 bytes) { return u64(u32(descriptor) + (bytes >> 4)) | descriptor >> 32 << 32; }

DEVICE void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING>
DEVICE void await_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// The compiler knows nothing of asynchronous products: what reads or writes these registers stays on its side of this.
template <int N>
DEVICE void settle(float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
        asm volatile("" : "+f"(x[i])::"memory");
    }
}

#define F8(mode, d, i)                                                                                                                     \
    mode(d[i]), mode(d[i + 1]), mode(d[i + 2]), mode(d[i + 3]), mode(d[i + 4]), mode(d[i + 5]), mode(d[i + 6]), mode(d[i + 7])
#define F32(mode, d, i) F8(mode, d, i), F8(mode, d, i + 8), F8(mode, d, i + 16), F8(mode, d, i + 24)
#define LIST_32                                                                                                                            \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "                       \
    "%24, %25, %26, %27, %28, %29, %30, %31"
#define LIST_64                                                                                                                            \
    LIST_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "                  \
            "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// scores = 64 rows · 128 or 64 others over 16 elements, added to what is there or not.
#define SCORES_128(TYPE, MODE, P)                                                                                                          \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\n"                                                                           \
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {" LIST_64 "}, %64, %65, p, 1, 1, 0, 0;\n}"                \
                 : F32(MODE, scores, 0), F32(MODE, scores, 32)                                                                             \
                 : "l"(rows), "l"(others))
#define SCORES_64(TYPE, MODE, P)                                                                                                           \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\n"                                                                           \
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " {" LIST_32 "}, %32, %33, p, 1, 1, 0, 0;\n}"                 \
                 : F32(MODE, scores, 0)                                                                                                    \
                 : "l"(rows), "l"(others))
#define READ_AND_WRITTEN(x) "+f"(x)
#define WRITTEN(x) "=f"(x)

// What becomes of the scores before: they are added to, overwritten in their registers, or have none until now.
enum Before { ADDED, OVERWRITTEN, NONE };
#define SCORES(N, TYPE)                                                                                                                    \
    if constexpr (BEFORE == ADDED) {                                                                                                       \
        SCORES_##N(TYPE, READ_AND_WRITTEN, "1");                                                                                           \
    } else if constexpr (BEFORE == OVERWRITTEN) {                                                                                          \
        SCORES_##N(TYPE, READ_AND_WRITTEN, "0");                                                                                           \
    } else {                                                                                                                               \
        SCORES_##N(TYPE, WRITTEN, "0");                                                                                                    \
    }

template <typename T, Before BEFORE>
DEVICE void multiply_scores(float (&scores)[64], u64 rows, u64 others) {
    if constexpr (SAME<T, bf16>) {
        SCORES(128, "bf16")
    } else {
        SCORES(128, "f16")
    }
}

template <typename T, Before BEFORE>
DEVICE void multiply_scores(float (&scores)[32], u64 rows, u64 others) {
    if constexpr (SAME<T, bf16>) {
        SCORES(64, "bf16")
    } else {
        SCORES(64, "f16")
    }
}

// sums += 64 rows of 16 weights · values.
#define WEIGHTS "r"(weights[0]), "r"(weights[1]), "r"(weights[2]), "r"(weights[3])
#define SUMS_128(TYPE)                                                                                                                     \
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {" LIST_64 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"     \
                 : F32(READ_AND_WRITTEN, sums, 0), F32(READ_AND_WRITTEN, sums, 32)                                                                                             \
                 : WEIGHTS, "l"(values))
#define SUMS_64(TYPE)                                                                                                                      \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " {" LIST_32 "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"      \
                 : F32(READ_AND_WRITTEN, sums, 0)                                                                                                            \
                 : WEIGHTS, "l"(values))

template <typename T>
DEVICE void multiply_values(float (&sums)[64], const u32 (&weights)[4], u64 values) {
    if constexpr (SAME<T, bf16>) {
        SUMS_128("bf16");
    } else {
        SUMS_128("f16");
    }
}

template <typename T>
DEVICE void multiply_values(float (&sums)[32], const u32 (&weights)[4], u64 values) {
    if constexpr (SAME<T, bf16>) {
        SUMS_64("bf16");
    } else {
        SUMS_64("f16");
    }
}
