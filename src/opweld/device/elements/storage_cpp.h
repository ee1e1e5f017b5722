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

// @kBlock deps:
// Elements of half that are converted at once, to and from floats in the first cache.
constexpr int64_t kBlock = 256;

// @HalfPacket deps:
// g++ 12 has no vector form of the processor's conversions in loops, but a function for 8 values.
#if defined(__F16C__) && !defined(__clang__)
#define OPWELD_HALF_PACKET 8
typedef short HalfPacket __attribute__((vector_size(16)));
typedef float FloatPacket __attribute__((vector_size(32)));
#endif

// @widen_block deps: string_header, half, HalfPacket, kBlock
// values[i] = x[i] for i < count
OPWELD_FN void widen_block(const half* x, int64_t count, float* values) {
    int64_t i = 0;
#ifdef OPWELD_HALF_PACKET
    for (; i + OPWELD_HALF_PACKET <= count; i += OPWELD_HALF_PACKET) {
        HalfPacket packet;
        memcpy(&packet, x + i, sizeof packet);
        const FloatPacket wide = __builtin_ia32_vcvtph2ps256(packet);
        memcpy(values + i, &wide, sizeof wide);
    }
#endif
    for (; i < count; ++i) values[i] = Compute<half>::widen(x[i]);
}

// @narrow_block deps: string_header, half, HalfPacket, kBlock
// x[i] = values[i], rounded to nearest, for i < count
OPWELD_FN void narrow_block(const float* values, int64_t count, half* x) {
    int64_t i = 0;
#ifdef OPWELD_HALF_PACKET
    for (; i + OPWELD_HALF_PACKET <= count; i += OPWELD_HALF_PACKET) {
        FloatPacket wide;
        memcpy(&wide, values + i, sizeof wide);
        const HalfPacket packet = __builtin_ia32_vcvtps2ph256(wide, 0);
        memcpy(x + i, &packet, sizeof packet);
    }
#endif
    for (; i < count; ++i) x[i] = Compute<half>::narrow(values[i]);
}

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
