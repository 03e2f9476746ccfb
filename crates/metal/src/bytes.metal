// Copies and fills of ranges that do not lie on words, which Metal's own commands do not take.
#include <metal_stdlib>
using namespace metal;

kernel void copy_bytes(device const uchar* x [[buffer(0)]], device uchar* y [[buffer(1)]], constant ulong& n [[buffer(2)]],
                       uint i [[thread_position_in_grid]]) {
    if (i < n) y[i] = x[i];
}

kernel void fill_bytes(device uchar* y [[buffer(0)]], constant ulong2& n_value [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    if (i < n_value.x) y[i] = uchar(n_value.y);
}
