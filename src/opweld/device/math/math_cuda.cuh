// CUDA texts of functions that CUDA's own are slower at, and no more exact.

namespace op {

// @rounded_product deps:
// a * b, to which nothing is added before it is rounded
template <typename T>
OPWELD_FN T rounded_product(T a, T b) {
    if constexpr (sizeof(T) == sizeof(float)) {
        return __fmul_rn(a, b);
    } else {
        return __dmul_rn(a, b);
    }
}

// @ratio deps: kInfinity
// a / b, b at least 1. The division of floats has a branch for quotients that it must scale, which
// holds up all else that a thread has under way; this has none: a times the reciprocal, and what
// that leaves of a. The result is within one unit in the last place.
template <typename T>
OPWELD_FN T ratio(T a, T b) {
    if constexpr (sizeof(T) != sizeof(float)) {
        return a / b;
    } else {
        float reciprocal;
        asm("rcp.approx.f32 %0, %1;" : "=f"(reciprocal) : "f"(b));
        const float first = a * reciprocal;
        const float too_much = fmaf(b, first, -a);  // so that a quotient of -0.0 stays one
        const float second = fmaf(too_much, -reciprocal, first);
        // Nothing is left of an infinity; a is one, or next to it, where b is not.
        return second == second ? second : (b < kInfinity<float> ? a : first);
    }
}

// @log deps:
// ln(x) = k ln(2) + ln(1 + f) with |f| <= 1/3; (ln(1 + f) - f + f^2 / 2) / f^3 is fitted to 4.7e-9
// of the logarithm (minimax in float32). As exact as logf over all floats, in 22 instructions for
// 25: k stays scaled by 2^23, and what is not finite, which is rare, is left to the logarithm unit.
template <typename T>
OPWELD_FN T log(T x) {
    if constexpr (sizeof(T) != sizeof(float)) {
        return ::log(x);
    } else {
        const bool tiny = x < 1.17549435e-38f;
        const float normal = tiny ? x * 8388608.0f : x;  // 2^23
        const uint32_t bits = __float_as_uint(normal);
        const uint32_t exponent = (bits - 0x3f2aaaabu) & 0xff800000u;
        const float f = __uint_as_float(bits - exponent) - 1.0f;
        float k = float(int32_t(exponent));
        if (tiny) k -= 192937984.0f;  // 23 * 2^23
        float q = -0.128802091f;
        q = fmaf(q, f, 0.139845937f);
        q = fmaf(q, f, -0.121874474f);
        q = fmaf(q, f, 0.14005734f);
        q = fmaf(q, f, -0.166801974f);
        q = fmaf(q, f, 0.200104266f);
        q = fmaf(q, f, -0.249998063f);
        q = fmaf(q, f, 0.333332151f);
        q = fmaf(q, f, -0.5f);
        float value = fmaf(k, 8.26295832e-8f, fmaf(f, f * q, f));  // ln(2) / 2^23
        if (bits - 1u >= 0x7f7fffffu) {  // zeros, negative numbers, infinity, NaN
            asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(normal));
        }
        return value;
    }
}

}  // namespace op
