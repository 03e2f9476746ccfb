#include <metal_stdlib>
using namespace metal;

int main() { return 0; } // refused: main

float counter = 0; // refused: mutable-global
threadgroup float sums[32]; // refused: threadgroup-global

static int print(constant char* text, ...); // refused: variadic

struct Shape {
    virtual float area() const; // refused: virtual
};

kernel void k(device float* out [[buffer(0)]], device atomic_long* total [[buffer(1)]]) { // refused: long-atomic
    static int calls = 0; // refused: static-local
    register int n = 3; // refused: register
    double x = 1; // refused: double
    asm("nop"); // refused: assembly
    goto end; // refused: goto
end:
    out[0] = x + n + calls;
}
