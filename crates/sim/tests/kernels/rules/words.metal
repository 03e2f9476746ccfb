#include <metal_stdlib>
using namespace metal;

int main() { return 0; } // rejected: main

float counter = 0; // rejected: mutable-global
threadgroup float sums[32]; // rejected: threadgroup-global

static int print(constant char* text, ...); // rejected: variadic

struct Shape {
    virtual float area() const; // rejected: virtual
};

kernel void k(device float* out [[buffer(0)]], device atomic_long* total [[buffer(1)]]) { // rejected: long-atomic
    static int calls = 0; // rejected: static-local
    register int n = 3; // rejected: register
    double x = 1; // rejected: double
    asm("nop"); // rejected: assembly
    goto end; // rejected: goto
end:
    out[0] = x + n + calls;
}
