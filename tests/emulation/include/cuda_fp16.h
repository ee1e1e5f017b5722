// __half for the emulation: arithmetic is float arithmetic rounded back, as the GPU's is.
#pragma once
#include "../cuda_emulation.h"

struct __half {
    uint16_t bits;
    __half() = default;
    __half(float v) : bits(round(v)) {}
    operator float() const { return widen(bits); }

    static uint16_t round(float v) {
        _Float16 narrow = _Float16(v);
        return emulation::bits<uint16_t>(narrow);
    }
    static float widen(uint16_t bits) { return float(emulation::bits<_Float16>(bits)); }
};
struct alignas(4) __half2 {
    __half x, y;
};
using half = __half;
using half2 = __half2;

inline float __half2float(__half h) { return float(h); }
inline __half __float2half(float v) { return __half(v); }
inline __half __float2half_rn(float v) { return __half(v); }
inline float2 __half22float2(__half2 h) { return {float(h.x), float(h.y)}; }
inline __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
inline __half2 __float22half2_rn(float2 v) { return {__half(v.x), __half(v.y)}; }
inline float __low2float(__half2 h) { return float(h.x); }
inline float __high2float(__half2 h) { return float(h.y); }
inline uint16_t __half_as_ushort(__half h) { return h.bits; }
inline __half __ushort_as_half(uint16_t bits) {
    __half h;
    h.bits = bits;
    return h;
}
