// __nv_bfloat16 for the emulation: arithmetic is float arithmetic rounded back, as the GPU's is.
#pragma once
#include "../cuda_emulation.h"

struct __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
    __nv_bfloat16(float v) : bits(round(v)) {}
    operator float() const { return emulation::bits<float>(uint32_t(bits) << 16); }

    // Nearest, ties to even; every NaN becomes the one that the GPU gives.
    static uint16_t round(float v) {
        if (v != v) return 0x7fff;
        uint32_t wide = emulation::bits<uint32_t>(v);
        return uint16_t((wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16);
    }
};
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

inline float __bfloat162float(__nv_bfloat16 h) { return float(h); }
inline __nv_bfloat16 __float2bfloat16(float v) { return __nv_bfloat16(v); }
inline __nv_bfloat16 __float2bfloat16_rn(float v) { return __nv_bfloat16(v); }
inline float2 __bfloat1622float2(__nv_bfloat162 h) { return {float(h.x), float(h.y)}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) {
    return {__nv_bfloat16(a), __nv_bfloat16(b)};
}
inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 h) { return h.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(uint16_t bits) {
    __nv_bfloat16 h;
    h.bits = bits;
    return h;
}
