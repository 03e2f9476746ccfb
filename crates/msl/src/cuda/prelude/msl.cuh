// Metal Shading Language for CUDA C++. Everything lives in a namespace of its own, beside which CUDA's names (float4, min, exp, …) are hidden.
// Compiled with NVRTC's `-default-device`: functions and variables are the device's. A simdgroup is a warp, threadgroup memory is shared memory.
#pragma once
#include "language.cuh"

namespace msl {
#include "scalars.cuh"
#include "traits.h"
#include "half.cuh"
#include "limits.cuh"
#include "vector.cuh"
#include "packed.cuh"
#include "matrix.h"
#include "types.h"
#include "common.h"
#ifdef ELV_ELEMENTARY
#include "elementary.h"
#endif
#include "math.cuh"
#include "geometric.h"
#include "integer.cuh"
#ifdef ELV_PACK
#include "pack.h"
#endif
#include "synchronization.cuh"
#include "collective.cuh"
#include "simdgroup.cuh"
#include "quadgroup.cuh"
#include "simdgroup_matrix.cuh"
#include "atomic.cuh"
#include "utility.cuh"
#ifdef ELV_TEXTURE
#include "texture.h"
#endif
#ifdef ELV_INTERNALS
#include "internals.h"
#endif
#include "entry.cuh"
} // namespace msl
