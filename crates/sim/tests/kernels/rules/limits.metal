#include <metal_stdlib>
using namespace metal;

struct Pair {
    float x, y;
};

kernel void k(device float* x [[buffer(0)]]) {
    x[0] = numeric_limits<float>::max();
    x[1] = numeric_limits<Pair>::max().x; // rejected: compile
}
