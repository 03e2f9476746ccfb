// Few rows times the matrices of up to three linear layers, each with a bias or none; of one layer, the residual added. Macro: BIAS.

// A bit of FewLayers::present, after those of the biases.
constexpr u64 RESIDUAL = 8;

struct Layer {
    const ELEMENT* w;
    const BIAS* bias;
    float* y;
    u64 n;
};

extern "C" __global__ void __launch_bounds__(256, EIGHTS <= 2 ? 2 : 1) dot_layers(
    const unsigned char* x,
    const ELEMENT* w0,
    const ELEMENT* w1,
    const ELEMENT* w2,
    const BIAS* b0,
    const BIAS* b1,
    const BIAS* b2,
    const float* residual,
    float* y0,
    float* y1,
    float* y2,
    const __grid_constant__ FewLayers p) {
    extern __shared__ __align__(128) unsigned char bytes[];
    const Layer layers[3] = {{w0, b0, y0, p.n[0]}, {w1, b1, y1, p.n[1]}, {w2, b2, y2, p.n[2]}};
    u32 tile = blockIdx.x, number = 0;
    for (; number < 2 && tile >= (p.n[number] + COLUMNS - 1) / COLUMNS; ++number) {
        tile -= u32((p.n[number] + COLUMNS - 1) / COLUMNS);
    }
    const Layer layer = number == 0 ? layers[0] : number == 1 ? layers[1] : layers[2];
    const u64 first = u64(tile) * COLUMNS;
    Matrix matrix = {{}, 1, ((u64(layer.w) | p.k * 2) & 15) == 0};
    for (int r = 0; r < 2; ++r) {
        matrix.own[r] = layer.w + min(first + own_row() + 8 * r, layer.n - 1) * p.k + own_part() * 8;
    }
    float sums[OWN] = {};
    multiply_few(x, matrix, p.k, *reinterpret_cast<Shared*>(bytes), sums);
#pragma unroll
    for (u32 i = 0; i < OWN; ++i) {
        const u32 element = threadIdx.x + 256 * i, row = element % ROWS;
        const u64 column = first + element / ROWS;
        if (element / ROWS < COLUMNS && column < layer.n && row < p.m) {
            const u64 at = row * layer.n + column;
            const float value = p.present >> number & 1 ? sums[i] + widen(layer.bias[column]) : sums[i];
            layer.y[at] = p.present & RESIDUAL ? residual[at] + value : value;
        }
    }
}
