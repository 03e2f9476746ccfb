#include <metal_stdlib>
using namespace metal;

static void grow(thread float& x) { x += 1; }
static float first(constant float* x) { return x[0]; }

kernel void k(device float* a [[buffer(0)]], constant float* c [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    threadgroup float shared[4];
    thread float* own = &shared[i]; // rejected: address-space
    constant float* table = a; // rejected: address-space
    grow(a[i]); // rejected: address-space
    a[i] = first(a); // rejected: address-space
    float x = a[i];
    grow(x);
    a[i] = x + *own + first(c) + first(table);
}
