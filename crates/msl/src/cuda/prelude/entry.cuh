// Entry points: a kernel's parameters, deduced from the kernel itself, and where the thread is.
#pragma once

namespace elv {
// The type of parameter I of a function.
template <int I, class F> struct parameter;
template <class P, class... R> struct parameter<0, void (*)(P, R...)> { typedef P type; };
template <int I, class P, class... R> struct parameter<I, void (*)(P, R...)> : parameter<I - 1, void (*)(R...)> {};
template <int I, class F> using parameter_t = typename parameter<I, F>::type;
// What a pointer or reference refers to.
template <int I, class F> using target_t = metal::remove_pointer_t<metal::remove_cv_t<metal::remove_reference_t<parameter_t<I, F>>>>;

// A target as a pointer or a reference to it.
template <class P> struct bind;
template <class T> struct bind<T*> { static __forceinline__ T* to(T* p) { return p; } };
template <class T> struct bind<T&> { static __forceinline__ T& to(T* p) { return *p; } };

// A position as a scalar or a vector of the parameter's type.
template <class P> struct position {
  static __forceinline__ P from(uint x, uint = 0, uint = 0) { return (P)x; }
};
template <class T> struct position<metal::vec<T, 2>> {
  static __forceinline__ metal::vec<T, 2> from(uint x, uint y = 1, uint = 1) { return metal::vec<T, 2>((T)x, (T)y); }
};
template <class T> struct position<metal::vec<T, 3>> {
  static __forceinline__ metal::vec<T, 3> from(uint x, uint y = 1, uint z = 1) { return metal::vec<T, 3>((T)x, (T)y, (T)z); }
};
template <class P> struct position<const P> : position<P> {};

// Has the L2 cache fetch `bytes` bytes; these and the address are multiples of 16.
__forceinline__ void fetch_ahead(const void* from, unsigned bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(from), "r"(bytes) : "memory");
#endif
}

// Launches may overlap: the next launch's threadgroups come once all of this one's have waited here for the launches ahead, and find a place beside
// them; they wait for this one's end before they touch what launches write.
__forceinline__ void await_launches() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// The next launch's threadgroups may come already.
__forceinline__ void trigger_launches() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Until all threadgroups of the cluster are here, and what they wrote into threadgroup memory can be read. A release of all memory would wait for device memory, too.
__forceinline__ void meet_cluster() {
#if __CUDA_ARCH__ >= 900
#if 100 * __CUDACC_VER_MAJOR__ + __CUDACC_VER_MINOR__ >= 1208
  asm volatile("fence.release.sync_restrict::shared::cta.cluster;" ::: "memory");
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#else
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// Until none of them reads what others have; nothing is reported.
__forceinline__ void leave_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}

// What the threadgroup of this number in the cluster has where this one has `from`.
__forceinline__ float load_from_cluster(uint number, const float* from) {
  float value = 0.0f;
#if __CUDA_ARCH__ >= 900
  uint there;
  asm("{.reg .u64 a; .reg .u32 b; cvta.to.shared.u64 a, %1; cvt.u32.u64 b, a; mapa.shared::cluster.u32 %0, b, %2;}" : "=r"(there) : "l"(from), "r"(number));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(there) : "memory");
#endif
  return value;
}

// Sixteen bytes that are read once, past the first cache.
__forceinline__ metal::vec<uint, 4> load_uncached(const metal::vec<uint, 4>* from) {
  uint a, b, c, d;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(from));
  return metal::vec<uint, 4>(a, b, c, d);
}

// Sixteen bytes that the second cache keeps longer than others.
__forceinline__ metal::vec<uint, 4> load_evicted_last(const metal::vec<uint, 4>* from) {
  unsigned long long policy;
  uint a, b, c, d;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(from), "l"(policy));
  return metal::vec<uint, 4>(a, b, c, d);
}

// The sum and the products of a pair of signed 16-bit integers with the two low or the two high bytes of a word, which have a sign or none.
__forceinline__ int dot_low(uint pair, uint bytes, int sum) {
  asm("dp2a.lo.s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(pair), "r"(bytes));
  return sum;
}
__forceinline__ int dot_high(uint pair, uint bytes, int sum) {
  asm("dp2a.hi.s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(pair), "r"(bytes));
  return sum;
}
__forceinline__ int dot_low_unsigned(uint pair, uint bytes, int sum) {
  asm("dp2a.lo.s32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(pair), "r"(bytes));
  return sum;
}
__forceinline__ int dot_high_unsigned(uint pair, uint bytes, int sum) {
  asm("dp2a.hi.s32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(pair), "r"(bytes));
  return sum;
}

// Four of the eight bytes of two words.
__forceinline__ uint permute(uint low, uint high, uint selectors) {
  uint bytes;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(selectors));
  return bytes;
}

// Of the lower or the upper four bits of a word's bytes, for `half` 0x6420 or 0x7531, which of the sixteen bytes of four words they choose.
__forceinline__ uint choose(uint a, uint b, uint c, uint d, uint word, uint half) {
  const uint selectors = word & 0x77777777u, tables = 0x32103210u | (word & 0x88888888u) >> 1;
  const uint first = permute(permute(a, b, selectors), permute(c, d, selectors), tables);
  const uint second = permute(permute(a, b, selectors >> 16), permute(c, d, selectors >> 16), tables >> 16);
  return permute(first, second, half);
}

// Of a magnitude and a number in either half the larger magnitude, NaN if one is.
__forceinline__ uint larger_half(uint a, uint b) {
  asm("{.reg .b32 m; abs.f16x2 m, %1; max.NaN.f16x2 %0, %0, m;}" : "+r"(a) : "r"(b));
  return a;
}
__forceinline__ uint larger_bfloat(uint a, uint b) {
#if __CUDA_ARCH__ >= 800
  asm("{.reg .b32 m; abs.bf16x2 m, %1; max.NaN.bf16x2 %0, %0, m;}" : "+r"(a) : "r"(b));
#endif
  return a;
}

// Products of matrices of bytes, 16 by 8 of a warp's: `rows`, signed or not, times signed `columns`, with `start` added. In k they are 32 long, a word of the
// thread's for each of two rows in either half and one for its column, or 16 long.
#define ELV_BYTE_PRODUCTS(name, type) \
  __forceinline__ void name(int (&sums)[4], const uint (&rows)[4], const uint (&columns)[2], int start) { \
    asm("mma.sync.aligned.m16n8k32.row.col.s32." type ".s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};" \
        : "=r"(sums[0]), "=r"(sums[1]), "=r"(sums[2]), "=r"(sums[3]) \
        : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "r"(columns[0]), "r"(columns[1]), "r"(start)); \
  } \
  __forceinline__ void name(int (&sums)[4], uint row, uint below, uint column, int start) { \
    asm("mma.sync.aligned.m16n8k16.row.col.s32." type ".s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};" \
        : "=r"(sums[0]), "=r"(sums[1]), "=r"(sums[2]), "=r"(sums[3]) \
        : "r"(row), "r"(below), "r"(column), "r"(start)); \
  }
#if __CUDA_ARCH__ >= 800
ELV_BYTE_PRODUCTS(signed_products, "s8")
ELV_BYTE_PRODUCTS(unsigned_products, "u8")
#endif
#undef ELV_BYTE_PRODUCTS

struct extent { uint x, y, z; };
__forceinline__ uint thread_index() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }

#ifdef ELV_NONUNIFORM
// All blocks have one size. Where a threadgroup is smaller, the block's first threads are its own, so that its simdgroups are warps, and the others leave.
// (What is left of the grid is a difference: a sum, where the block would end, may have more than 32 bits.)
__forceinline__ extent threadgroup_size(extent grid) {
  return {metal::min(blockDim.x, grid.x - blockIdx.x * blockDim.x), metal::min(blockDim.y, grid.y - blockIdx.y * blockDim.y),
          metal::min(blockDim.z, grid.z - blockIdx.z * blockDim.z)};
}
__forceinline__ bool is_outside(extent size) { return thread_index() >= size.x * size.y * size.z; }
__forceinline__ extent position_in_threadgroup(extent size) {
  if (size.x == blockDim.x && size.y == blockDim.y) return {threadIdx.x, threadIdx.y, threadIdx.z};
  uint row = thread_index() / size.x;
  return {thread_index() % size.x, row % size.y, row / size.y};
}
#endif
} // namespace elv

// The threadgroup's own threads, and where the thread is among them.
#ifdef ELV_NONUNIFORM
#define ELV_SIZE elv_size
#define ELV_PLACE elv_place
#else
#define ELV_SIZE blockDim
#define ELV_PLACE threadIdx
#endif

#define ELV_AT(v) v.x, v.y, v.z
#define ELV_GROUPS(v, width) (v.x * v.y * v.z + width - 1) / width
#define ELV_thread_position_in_grid blockIdx.x * blockDim.x + ELV_PLACE.x, blockIdx.y * blockDim.y + ELV_PLACE.y, blockIdx.z * blockDim.z + ELV_PLACE.z
#define ELV_thread_position_in_threadgroup ELV_AT(ELV_PLACE)
#define ELV_threadgroup_position_in_grid ELV_AT(blockIdx)
#define ELV_threads_per_threadgroup ELV_AT(ELV_SIZE)
#define ELV_dispatch_threads_per_threadgroup ELV_AT(blockDim)
#define ELV_threadgroups_per_grid ELV_AT(gridDim)
#define ELV_threads_per_grid ELV_AT(elv_grid)
#define ELV_grid_size ELV_AT(elv_grid)
#define ELV_grid_origin 0, 0, 0
#define ELV_thread_index_in_threadgroup elv::thread_index()
#define ELV_thread_index_in_simdgroup elv::thread_index() % 32
#define ELV_simdgroup_index_in_threadgroup elv::thread_index() / 32
#define ELV_threads_per_simdgroup 32
#define ELV_simdgroups_per_threadgroup ELV_GROUPS(ELV_SIZE, 32)
#define ELV_dispatch_simdgroups_per_threadgroup ELV_GROUPS(blockDim, 32)
#define ELV_quadgroup_index_in_threadgroup elv::thread_index() / 4
#define ELV_thread_index_in_quadgroup elv::thread_index() % 4
#define ELV_quadgroups_per_threadgroup ELV_GROUPS(ELV_SIZE, 4)
#define ELV_dispatch_quadgroups_per_threadgroup ELV_GROUPS(blockDim, 4)
