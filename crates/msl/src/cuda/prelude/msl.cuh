// Metal Shading Language for CUDA C++. Everything lives in a namespace of its own, beside which CUDA's names (float4, min, exp, …) are hidden.
// Compiled with NVRTC's `-default-device`: functions and variables are the device's. A simdgroup is a warp, threadgroup memory is shared memory.
#pragma once
#include "language.cuh"

namespace msl {
#include "scalars.cuh"
#include "traits.cuh"
#include "half.cuh"
#include "limits.cuh"
#include "vector.cuh"
#include "packed.cuh"
#include "matrix.cuh"
#include "types.cuh"
#include "common.cuh"
#include "math.cuh"
#include "geometric.cuh"
#include "integer.cuh"
#ifdef ELV_PACK
#include "pack.cuh"
#endif
#include "synchronization.cuh"
#include "collective.cuh"
#include "simdgroup.cuh"
#include "quadgroup.cuh"
#include "simdgroup_matrix.cuh"
#include "atomic.cuh"
#include "utility.cuh"
#ifdef ELV_TEXTURE
#include "texture.cuh"
#endif
#ifdef ELV_INTERNALS
#include "internals.cuh"
#endif
#include "entry.cuh"
} // namespace msl
