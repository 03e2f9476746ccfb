// Few rows times a matrix of any strides. Macro: RESULT.

extern "C" __global__ void __launch_bounds__(256, EIGHTS <= 2 ? 2 : 1)
    dot_few(const unsigned char* x, const ELEMENT* w, const void* bias, RESULT* y, const __grid_constant__ Few p) {
    extern __shared__ __align__(128) unsigned char bytes[];
    w += p.origin;
    const u64 first = u64(blockIdx.x) * COLUMNS;
    Matrix matrix = {{}, p.strides[1], p.strides[1] == 1 && ((u64(w) | u64(p.strides[0] * 2)) & 15) == 0};
    for (int r = 0; r < 2; ++r) {
        matrix.own[r] = w + i64(min(first + own_row() + 8 * r, p.results.n - 1)) * p.strides[0] + own_part() * 8 * p.strides[1];
    }
    float sums[OWN] = {};
    multiply_few(x, matrix, p.k, *reinterpret_cast<Shared*>(bytes), sums);
#pragma unroll
    for (u32 i = 0; i < OWN; ++i) {
        const u32 element = threadIdx.x + 256 * i, row = element % ROWS;
        const u64 column = first + element / ROWS;
        if (element / ROWS < COLUMNS && column < p.results.n && row < p.results.m) {
            store(y + row * p.results.n + column, finish(sums[i], p.results, bias, column));
        }
    }
}
