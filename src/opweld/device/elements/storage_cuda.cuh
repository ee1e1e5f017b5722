// What every CUDA text begins with, and the toolkit's 16-bit types.

// @prologue deps:
#include <math.h>
#include <stdint.h>
#define OPWELD_FN static __device__ __forceinline__
#define OPWELD_HOST_FN static __host__ __device__ inline

// @half_header deps:
#include <cuda_fp16.h>

// @bfloat16_header deps:
#include <cuda_bf16.h>

namespace op {

// @half deps: half_header, Compute
using half = __half;

template <>
struct Compute<half> {
    using type = float;
    OPWELD_FN float widen(half x) { return __half2float(x); }
    OPWELD_FN half narrow(float v) { return __float2half_rn(v); }
};

// @bfloat16 deps: bfloat16_header, Compute
using bfloat16 = __nv_bfloat16;

template <>
struct Compute<bfloat16> {
    using type = float;
    OPWELD_FN float widen(bfloat16 x) { return __bfloat162float(x); }
    OPWELD_FN bfloat16 narrow(float v) { return __float2bfloat16_rn(v); }
};

}  // namespace op
