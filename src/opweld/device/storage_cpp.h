// What every C++ text begins with, and 16-bit types whose conversions are branch-free, so that g++
// turns loops over them into vector code.

// @prologue deps:
#include <math.h>
#include <stdint.h>
#define OPWELD_FN static inline

// @string_header deps:
#include <string.h>

namespace op {

// @half deps: string_header, Compute
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

// @bfloat16 deps: string_header, Compute
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

}  // namespace op
