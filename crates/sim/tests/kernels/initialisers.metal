// Constants that are computed when a library is loaded: the first two faultlessly.
#include <metal_stdlib>
using namespace metal;

static int ratio(int a, int b) {
    int volatile divisor = b;
    return a / divisor; // expect: integer-division
}

constant int fine = ratio(84, 2);
constant int finer = ratio(fine, 6);
#ifdef FAULTY
constant int faulty = ratio(7, 0);
#endif

kernel void constants(device int* o [[buffer(0)]]) {
    o[0] = fine;
    o[1] = finer;
#ifdef FAULTY
    o[2] = faulty;
#endif
}
