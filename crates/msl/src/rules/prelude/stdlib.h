// <metal_stdlib>, declared: the overloads that Apple's headers have, and no others.
#pragma once

#include "types.h"
#include "limit_macros.h"
#include "constants.h"
#include "limits.h"
#include "math.h"
#include "geometric.h"
#include "integer.h"
#include "synchronization.h"
#include "simd.h"
#include "atomic.h"
#include "simdgroup_matrix.h"
#include "pack.h"
#include "texture.h"
#include "utility.h"
#include "internals.h"
