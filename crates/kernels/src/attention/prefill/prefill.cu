// Attention of many queries on the tensor cores of compute capability 9.0: fast precision, in CUDA C++.
//
// A thread block of three warpgroups walks over tiles of 128 queries of one head, those with most keys first. One warpgroup copies queries, keys
// and values to shared memory, 128 keys or values at a time, into a ring of buffers. The other two have 64 queries each: scores by wgmma, a running
// softmax in base 2, weights rounded to the keys' type, sums of values by wgmma, which go on during the next softmax. Queries are read once, keys and
// values once for each tile of queries.
//
// Macros: Q (float, f16 or bf16), KV (f16 or bf16) and WIDTH (64 or 128, of queries, keys and values).

extern "C" __global__ void __launch_bounds__(384, 1) attention_prefill(const Q* q, const KV* k, const KV* v, const void*, const int* positions,
                                                                       const int* lengths, Q* y, const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const Memory memory = {shared_address(shared)};
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            init(memory.full(i), 1);
            init(memory.empty(i), 8);
        }
        init(memory.queries_full(), 4);
        init(memory.queries_empty(), 8);
    }
    __syncthreads();
    const Schedule schedule(p, positions, lengths);
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
        copy_all(memory, schedule, q, k, v);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
        compute_all(memory, schedule, y);
    }
}
