// Products of warps on tensor cores, from tiles of rows in shared memory, in CUDA C++ for compute capability 8.0 and later.
//
// Macros: KV (f16 or bf16), the type of the elements, and WIDTH (64 or 128), those of a row.

constexpr int THREADS = 128;          // Of a team, which has a tile of its own rows.
constexpr int ROWS = 64;              // Of its own tile, 16 for each warp.
constexpr int BLOCK = 4096 / WIDTH;   // Rows of the tiles that it walks over.
constexpr int PITCH = 2 * WIDTH + 16; // Bytes from row to row: spreads rows over the banks.

DEVICE int lane() { return threadIdx.x % 32; }
DEVICE int member() { return threadIdx.x % THREADS; }
DEVICE int team() { return threadIdx.x / THREADS; }
// Waits for the team, one of so many.
template <int TEAMS>
DEVICE void meet() {
    if (TEAMS == 1) {
        __syncthreads();
    } else if (team() == 0) {
        asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
    } else {
        asm volatile("bar.sync 2, %0;" ::"n"(THREADS) : "memory");
    }
}

DEVICE u32 shared_address(const void* p) { return u32(__cvta_generic_to_shared(p)); }

DEVICE void copy_async(u32 to, const void* from, u32 bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
DEVICE void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING>
DEVICE void await_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

DEVICE void store_shared(u32 to, const u32 (&words)[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]) : "memory");
}

// Four matrices of 8 x 8 elements, whose rows the lanes point at.
DEVICE void load_matrices(u32 (&to)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}
DEVICE void load_transposed(u32 (&to)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}

// sums += a b, of 16 x 16 and 16 x 8 elements.
#define PRODUCT(TYPE)                                                                                                                                  \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                  \
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                                                                                   \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))

DEVICE void multiply(float (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    if constexpr (SAME<KV, bf16>) {
        PRODUCT("bf16");
    } else {
        PRODUCT("f16");
    }
}
