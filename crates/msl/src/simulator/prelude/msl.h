// Metal Shading Language for clang's C++ for OpenCL mode: the address spaces of that mode are real to its type checker, yet on a CPU they all
// lower to the one there is, so that the code runs and can be instrumented.
#pragma once
#pragma clang system_header
#include "language.h"

#include "traits.h"
#include "limits.h"
#include "vector.h"
#include "packed.h"
#include "matrix.h"
#include "types.h"
#include "common.h"
#include "elementary.h"
#include "math.h"
#include "geometric.h"
#include "integer.h"
#include "pack.h"
#include "synchronization.h"
#include "collective.h"
#include "simdgroup.h"
#include "quadgroup.h"
#include "simdgroup_matrix.h"
#include "atomic.h"
#include "utility.h"
#include "texture.h"
#include "internals.h"

#include "entry.h"
