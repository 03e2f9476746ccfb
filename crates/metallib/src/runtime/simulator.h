// As a part of the prelude: what is found in it is at the kernel's own line.
#line 3 "/elinvar-prelude/air.h"
// The simulator's part of the functions that compiled libraries call (air.h).
#pragma once
#define AIR extern "C" __attribute__((always_inline))
#define HERE elv_text file, int line
#define AND_HERE , HERE
#define PLACE file, line
#define AND_PLACE , PLACE
#define LANES HERE
#define AND_LANES AND_HERE
#define THESE PLACE
#define AND_THESE AND_PLACE
#define MEET(operation) elv_collective(&elv::nothing, nullptr, operation, file, line)
