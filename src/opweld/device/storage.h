// How values are stored and how they are computed with: half and bfloat16 are widened to float and
// rounded back to nearest, ties to even. On CUDA the types are the toolkit's; in C++ they are two
// structs whose conversions are branch-free, so that g++ turns loops over them into vector code.

// @half_header deps:
#ifdef __CUDACC__
#include <cuda_fp16.h>
#else
#include <string.h>
#endif

// @bfloat16_header deps:
#ifdef __CUDACC__
#include <cuda_bf16.h>
#else
#include <string.h>
#endif

namespace op {

// @Compute deps:
// The type that values stored as T are computed in.
template <typename T>
struct Compute {
    using type = T;
    OPWELD_FN T widen(T x) { return x; }
    OPWELD_FN T narrow(T v) { return v; }
};

// @to_compute deps: Compute
// x in its compute type
template <typename T>
OPWELD_FN typename Compute<T>::type to_compute(T x) {
    return Compute<T>::widen(x);
}

// @from_compute deps: Compute
// v as stored in T
template <typename T>
OPWELD_FN T from_compute(typename Compute<T>::type v) {
    return Compute<T>::narrow(v);
}

// @half deps: half_header, Compute
#ifdef __CUDACC__
using half = __half;

template <>
struct Compute<half> {
    using type = float;
    OPWELD_FN float widen(half x) { return __half2float(x); }
    OPWELD_FN half narrow(float v) { return __float2half_rn(v); }
};
#else
struct half {
    uint16_t bits;
};

template <>
struct Compute<half> {
    using type = float;
    OPWELD_FN float widen(half x) {
        _Float16 value;
        memcpy(&value, &x, sizeof value);
        return value;
    }
    OPWELD_FN half narrow(float v) {
        _Float16 value = _Float16(v);
        half x;
        memcpy(&x, &value, sizeof x);
        return x;
    }
};
#endif

// @bfloat16 deps: bfloat16_header, Compute
#ifdef __CUDACC__
using bfloat16 = __nv_bfloat16;

template <>
struct Compute<bfloat16> {
    using type = float;
    OPWELD_FN float widen(bfloat16 x) { return __bfloat162float(x); }
    OPWELD_FN bfloat16 narrow(float v) { return __float2bfloat16_rn(v); }
};
#else
struct bfloat16 {
    uint16_t bits;
};

template <>
struct Compute<bfloat16> {
    using type = float;
    OPWELD_FN float widen(bfloat16 x) {
        uint32_t wide = uint32_t(x.bits) << 16;
        float value;
        memcpy(&value, &wide, sizeof value);
        return value;
    }
    OPWELD_FN bfloat16 narrow(float v) {
        uint32_t wide;
        memcpy(&wide, &v, sizeof wide);
        uint32_t rounded = (wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16;
        return bfloat16{uint16_t(v != v ? 0x7fffu : rounded)};
    }
};
#endif

}  // namespace op
