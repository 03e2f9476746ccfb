using namespace metal;

kernel void k(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    x[i] = fma(x[i], 2.0f, 1.0f); // rejected: include
    x[i] = float4(x[i]).y;
}
