// What every C++ text begins with, and 16-bit types whose conversions are branch-free, so that g++
// turns loops over them into vector code.

// @prologue deps:
#include <math.h>
#include <stdint.h>
#define OPWELD_FN static inline

// @string_header deps:
#include <string.h>

namespace op {

// @float_from_bits deps: string_header
OPWELD_FN float float_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// @bits_from_float deps: string_header
OPWELD_FN uint32_t bits_from_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

// @half deps: Compute, float_from_bits, bits_from_float
struct half {
    uint16_t bits;
};

template <>
struct Compute<half> {
    using type = float;
    // The exponent is moved up by a product, which is exact for subnormal numbers too.
    OPWELD_FN float widen(half x) {
        uint32_t magnitude = (x.bits & 0x7fffu) << 13;
        uint32_t finite = bits_from_float(float_from_bits(magnitude) * 5.192296858534828e33f);
        uint32_t bits = magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite;
        return float_from_bits(bits | (x.bits & 0x8000u) << 16);
    }
    OPWELD_FN half narrow(float v) {
        uint32_t bits = bits_from_float(v);
        uint32_t magnitude = bits & 0x7fffffffu;
        // Below 2^-14 a last place is 2^-24, as it is next to 0.5 in float: the sum rounds.
        uint32_t tiny = bits_from_float(float_from_bits(magnitude) + 0.5f) - 0x3f000000u;
        uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
        uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
        uint32_t finite = magnitude < 0x38800000u ? tiny : normal;
        uint32_t rounded = magnitude >= 0x47800000u ? special : finite;
        return half{uint16_t(rounded | (bits >> 16 & 0x8000u))};
    }
};

// @bfloat16 deps: Compute, float_from_bits, bits_from_float
struct bfloat16 {
    uint16_t bits;
};

template <>
struct Compute<bfloat16> {
    using type = float;
    OPWELD_FN float widen(bfloat16 x) { return float_from_bits(uint32_t(x.bits) << 16); }
    OPWELD_FN bfloat16 narrow(float v) {
        uint32_t bits = bits_from_float(v);
        uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
        return bfloat16{uint16_t(v != v ? 0x7fc0u : rounded)};
    }
};

}  // namespace op
